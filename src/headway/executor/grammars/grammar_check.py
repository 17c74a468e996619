"""GrammarChecker: checks in a child process whether a grammar can be compiled.

llguidance bounds the cost of a step. But a grammar of 1 KB can keep its compiler busy for minutes,
and one of 80 KB can overflow the stack, which ends the process. So a child process compiles each
grammar first, with a second of processor time and a quarter of the usual stack. The engine gets
only grammars that passed, so none can stall it for longer or end it.
"""

import atexit
import json
import signal
import subprocess
import sys
import threading
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from headway.core.grammar import Grammar
from headway.errors import GrammarCheckError, SettingError, TokenizerError
from headway.executor.grammars.grammar import compile_grammar, dead_end, grammar_tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

COMPILE_SECONDS = 1.0  # of processor time, for compiling and the first mask
STACK_BYTES = 2**21


@lru_cache(maxsize=256)
def grammar_problem(grammar: Grammar, folder: Path, seconds: float = COMPILE_SECONDS) -> str:
    """Why a grammar cannot be used, in one line; empty if it can.

    folder: of the tokenizer, which the first call reads. seconds: the processor time it may take.
    It blocks, so do not call it on an event loop. Thread-safe; grammars are checked one at a time.
    Raises GrammarCheckError if the child ended for another reason, such as lack of memory.
    """
    return grammar.problem() or _checker(folder).problem(grammar, seconds)


@cache
def _checker(folder: Path) -> "GrammarChecker":
    checker = GrammarChecker(folder)
    atexit.register(checker.close)
    return checker


class GrammarChecker:
    """The child process, started when needed and again after a grammar has ended it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None

    def problem(self, grammar: Grammar, seconds: float = COMPILE_SECONDS) -> str:
        """As grammar_problem."""
        with self._lock:
            if self._child is not None and self._child.poll() is not None:
                self._end()  # it was ended from outside
            if self._child is None:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(self.folder)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            try:
                answer = _answer(self._child, [grammar.kind, grammar.text, seconds])
            except BaseException:  # an interrupted wait: the next grammar must not get this answer
                self._child.kill()
                self._end()
                raise
            return self._why(grammar, seconds) if answer is None else answer

    def _why(self, grammar: Grammar, seconds: float) -> str:
        status = self._end()
        if status == -signal.SIGPROF:
            return f"the {grammar.kind} takes more than {seconds:g} s to compile: make it simpler"
        if -status in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT):
            return f"the {grammar.kind} is nested or chained too deeply to be compiled"
        raise GrammarCheckError(f"the process that checks grammars ended with {status}: try again")

    def close(self) -> None:
        """End the child process, if there is one."""
        with self._lock:
            if self._child is not None:
                self._end()

    def _end(self) -> int:
        """End the child; return its exit status."""
        child, self._child = self._child, None
        assert child
        child.communicate()  # closes its input, which ends it
        return child.returncode


def _answer(child: "subprocess.Popen[str]", ask: list[str | float]) -> str | None:
    """The child's answer; None if it has ended instead."""
    assert child.stdin and child.stdout
    try:
        child.stdin.write(json.dumps(ask) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
    except BrokenPipeError:
        return None
    return str(json.loads(line)) if line.endswith("\n") else None


def serve(folder: Path) -> None:
    """Run the child's loop: read one grammar per line and write what is wrong with it."""
    cause, tokens = "the grammar's compiler has failed", None
    try:
        tokens = grammar_tokenizer(folder, 0, frozenset({0}))  # any end works: nothing is sampled
    except (SettingError, TokenizerError) as error:
        cause = str(error)
    threading.stack_size(STACK_BYTES)
    for line in sys.stdin:
        answers = [cause]
        if tokens is not None:
            kind, text, seconds = json.loads(line)
            trial = threading.Thread(target=_compile, args=(Grammar(kind, text), tokens, answers))
            signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends the process
            trial.start()
            trial.join()
            signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(answers[-1]), flush=True)


def _compile(grammar: Grammar, tokens: "LLTokenizer", answers: list[str]) -> None:
    """Compile a grammar and compute its first mask, which has separate limits."""
    try:
        state = compile_grammar(grammar, tokens)
        state.compute_bitmask()
        answers.append(dead_end(state))
    except SettingError as error:
        answers.append(str(error))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
