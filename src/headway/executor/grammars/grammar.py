"""GrammarCompiler: compiles grammars with llguidance. Matcher: one sequence's state in a grammar.

There are no tensors here, so checking a grammar does not need torch. llguidance and the tokenizer
are loaded for the first grammar.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.core.batch import Begun
from headway.core.grammar import DEAD_END, Grammar
from headway.errors import SettingError, TokenizerError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

KEPT_GRAMMARS = 256  # compiled grammars to keep, those used last
NO_STOP_TOKEN = "an answer with a grammar must stop at every end that the model has"
LONGEST = 300  # characters of a message; some quote the whole grammar
# Between two tokens of JSON: one blank, as in `{"a": 1, "b": 2}`, or a new line and indentation.
# If more were allowed, a weak model would spend its max_tokens on blanks. A schema's own
# "x-guidance" wins.
BLANKS: "JsonCompileOptions" = {"whitespace_pattern": r" |\n {0,8}"}


class Matcher:
    """One sequence's state in its grammar. It advances with the rows, which hold accepted tokens.

    known   |<------ prompt ------>|<- answer ->|     the grammar sees only the answer; after a
                                                      preemption it starts again with all of it
    """

    def __init__(self, begun: Begun, state: "LLMatcher") -> None:
        self.error, self.state = "", state
        self._known = begun.prompt
        self.extend(0, begun.tokens)

    def extend(self, start: int, tokens: Sequence[int]) -> None:
        """Advance by a row's tokens, skipping those that are already known."""
        new = tokens[self._known - start :]
        if new and not self.error:
            self._known += len(new)
            self.state.consume_tokens(list(new))
            self.check()

    def check(self) -> None:
        """Set the error if the answer cannot continue: no text matches, or a limit of llguidance
        was reached."""
        self.error = dead_end(self.state)


class GrammarCompiler:
    """The grammars of one model, compiled at first use and kept. Thread-safe."""

    def __init__(self, folder: Path, vocab: int, eos: frozenset[int]) -> None:
        """folder: of the tokenizer; empty: there is none. vocab: the width of the logits."""
        self.folder, self.vocab, self.eos = folder, vocab, eos
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()  # of _compiled; not held while a grammar is compiled

    def compile(self, grammar: Grammar) -> None:
        """Compile a grammar ahead of its first step, in the caller's thread. Raises as `begin`."""
        self._compiled_matcher(grammar)

    def begin(self, begun: Begun) -> Matcher:
        """A matcher that has read the known tokens. Raises SettingError or TokenizerError."""
        sampling = begun.sampling
        if not self.eos <= sampling.stop_tokens:
            raise SettingError(NO_STOP_TOKEN)
        return Matcher(begun, self._compiled_matcher(sampling.grammar).deep_copy())

    def _compiled_matcher(self, grammar: Grammar) -> "LLMatcher":
        """The compiled grammar's initial state. Copy it before use."""
        if not self.eos:
            raise SettingError(NO_STOP_TOKEN)
        with self._lock:
            matcher = self._compiled.get(grammar)
        if matcher is None:
            if self._tokenizer is None:
                self._tokenizer = grammar_tokenizer(self.folder, self.vocab, self.eos)
            matcher = compile_grammar(grammar, self._tokenizer)
        with self._lock:
            self._compiled[grammar] = matcher
            self._compiled.move_to_end(grammar)
            if len(self._compiled) > KEPT_GRAMMARS:
                self._compiled.popitem(last=False)
        return matcher


def grammar_tokenizer(folder: Path, vocab: int, ends: frozenset[int]) -> "LLTokenizer":
    """Load a checkpoint's tokenizer in llguidance's form, a trie of bytes. A large one takes a
    second.

    vocab: of the model; 0: the tokenizer's own. ends: tokens that are allowed exactly where a
    grammar may end. Raises SettingError or TokenizerError.
    """
    try:
        from llguidance import LLTokenizer
    except ImportError:
        raise SettingError("grammars need llguidance: pip install llguidance") from None
    if folder == Path():
        raise TokenizerError("a grammar needs a tokenizer, and a model of random weights has none")
    file = folder / "tokenizer.json"
    try:
        return LLTokenizer(file.read_text("utf-8"), n_vocab=vocab or None, eos_token=sorted(ends))
    except FileNotFoundError:
        raise TokenizerError(f"a grammar needs {file.name}, and {folder} has none") from None
    except (OSError, ValueError) as error:
        raise TokenizerError(
            f"{file} cannot be read for grammars: {_one_line(str(error))}"
        ) from error


def compile_grammar(grammar: Grammar, tokens: "LLTokenizer") -> "LLMatcher":
    """Compile a grammar to its initial state. Raises SettingError, which says what is wrong."""
    from llguidance import LLMatcher, LLParserLimits

    if problem := grammar.problem():
        raise SettingError(problem)
    try:
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(tokens, to_llguidance(grammar), log_level=0, limits=limits)
    except (ValueError, RecursionError) as error:  # not JSON, or not Unicode
        raise SettingError(f"the {grammar.kind} cannot be read: {_one_line(str(error))}") from error
    if matcher.is_error():
        raise SettingError(
            f"the {grammar.kind} cannot be compiled: {_one_line(matcher.get_error())}"
        )
    return matcher


def dead_end(state: "LLMatcher") -> str:
    """Why the answer cannot continue from here; empty if it can, or if it is complete."""
    if not state.is_error():
        return ""
    if state.stop_reason() == "InternalError":  # llguidance says no more than this
        return f"{DEAD_END}: there is no text that matches it from here on"
    return f"{DEAD_END}: {_one_line(state.get_error())}"


def to_llguidance(grammar: Grammar) -> str:
    """Convert a grammar to llguidance's format. Raises ValueError if its JSON is not valid."""
    from llguidance import LLMatcher

    match grammar.kind:
        case "json_object":
            return LLMatcher.grammar_from_json_schema({"type": "object"}, BLANKS)
        case "json_schema":
            # Parsed here: llguidance would paste the text between others without reading it.
            schema = json.loads(grammar.text)
            if not isinstance(schema, dict):
                raise ValueError("it must be a JSON object")
            json.dumps(schema, allow_nan=False)  # llguidance would read NaN or infinity as null
            return LLMatcher.grammar_from_json_schema(schema, BLANKS)
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        case "choice":
            options = json.loads(grammar.text)
            if not isinstance(options, list) or not options or not all(map(_is_text, options)):
                raise ValueError("it must be a list of strings, none of them empty")
            return LLMatcher.grammar_from_regex("|".join(map(_escaped, options)))
    # Wrapped, because llguidance would take a text that looks like JSON for its own format.
    return json.dumps({"grammars": [{"lark_grammar": grammar.text}]})


def _is_text(option: Any) -> bool:
    return isinstance(option, str) and option != ""


def _escaped(text: str) -> str:
    """A regular expression that matches only this text."""
    return "".join([f"\\x{{{ord(each):x}}}" if not each.isalnum() else each for each in text])


def _one_line(text: str) -> str:
    """Reduce llguidance's message of several lines, which marks the error's place, to one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["unknown"]
    causes = [line.removeprefix("error: ") for line in lines[1:] if line.startswith("error: ")]
    first = lines[0] if len(lines[0]) <= LONGEST else lines[0][:LONGEST] + " ..."
    return " ".join([first, *causes])
