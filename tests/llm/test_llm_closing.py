"""An LLM closes its executor, its journal and its engine when something fails."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from headway import LLM, HeadwayError
from headway.engine import Executor
from headway.journal.file import JournalFile
from headway.live.engine import LiveEngine
from headway.models import EMBEDDED


class Counted(Executor):
    """Counts how often it is closed."""

    closed = 0

    def close(self):
        self.closed += 1


@pytest.fixture
def loaded(monkeypatch):
    plan = SimpleNamespace(num_blocks=9, block_size=16, context=64)
    made = SimpleNamespace(
        plan=plan,
        executor=Counted(),
        folder=EMBEDDED,
        vocab=4096,
        eos=frozenset(),
        dtype="float32",
        device="cpu",
    )
    monkeypatch.setattr("headway.llm.llm.load", lambda *asked: made)
    return made


def test_the_executor_is_closed_if_the_folder_has_no_tokenizer(loaded, tmp_path):
    loaded.folder = tmp_path
    with pytest.raises(HeadwayError, match="tokenizer"):
        LLM()
    assert loaded.executor.closed == 1


@pytest.fixture
def closed(monkeypatch):
    """The journals that have been closed."""
    close, done = JournalFile.close, []

    def count(journal):
        done.append(journal)
        close(journal)

    monkeypatch.setattr(JournalFile, "close", count)
    return done


def test_the_executor_and_the_journal_are_closed_if_the_engine_cannot_begin(
    loaded, closed, tmp_path, monkeypatch
):
    def broken(*given):
        raise RuntimeError("no thread")

    monkeypatch.setattr("headway.llm.llm.LiveEngine", broken)
    with pytest.raises(RuntimeError, match="no thread"):
        LLM(journal=tmp_path / "j")
    assert (loaded.executor.closed, len(closed)) == (1, 1)


def test_the_executor_and_the_journal_are_closed_even_if_closing_the_engine_fails(
    loaded, closed, tmp_path, monkeypatch
):
    close = LiveEngine.close

    def broken(engine):
        close(engine)
        raise RuntimeError("no end")

    monkeypatch.setattr(LiveEngine, "close", broken)
    llm = LLM(journal=tmp_path / "j")
    with pytest.raises(RuntimeError, match="no end"):
        llm.close()
    assert (loaded.executor.closed, len(closed)) == (1, 1)


NEVER_CLOSED = """
import threading, weakref
from headway import LLM, Options

def report():
    print([each.name for each in threading.enumerate() if each.name == "headway-engine"])

looks = weakref.finalize(report, report.__call__)  # the first one made is the last one called
llm = LLM()
stream = llm.stream("The json module", Options(max_tokens=2000, ignore_eos=True))
next(stream)
raise SystemExit(7)
"""


def test_a_program_that_ends_while_an_llm_computes_ends_the_engine_first():
    done = subprocess.run(
        [sys.executable, "-c", NEVER_CLOSED], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 7), done.stderr
