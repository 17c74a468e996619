"""What headway says no with. Each message is one line that names the cause and the remedy.

HeadwayError
|-- SettingError           a setting that cannot be obeyed (also a ValueError)
|-- RefusedError           a request that was not accepted; may carry a time to come back
|-- JournalError           a journal that cannot be read, or that a run has parted from
|-- CheckpointError        a checkpoint is missing, incomplete or damaged
|   `-- UnsupportedModelError  a sound one that asks for what the executor lacks
|   `-- TokenizerError     its tokenizer is missing, unreadable, or another model's
|-- PromptError            a prompt that cannot be computed
|-- MemoryPlanError        what was asked for does not fit into the memory that is there
|-- GrammarCheckError             a grammar that could not be tried, through no fault of its own
|-- StuckError             a simulation in which nothing will ever happen again
|-- UnansweredError        some of a generate's requests failed; it has the answers of the others
`-- EngineError            the engine could not finish a request that it had begun
    `-- EngineDownError    the engine has ended; its cause is the exception's __cause__
        `-- DrainingError  it was asked to end: another, or the next one, takes the request
"""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any


class HeadwayError(Exception):
    """Whatever headway tells its user; the command line prints it without a traceback."""


class SettingError(HeadwayError, ValueError):
    """A setting that cannot be obeyed."""


class RefusedError(HeadwayError):
    """Said at the door: why, and when to come back (nanoseconds of the engine's clock)."""

    def __init__(self, reason: str, retry_at: int) -> None:
        super().__init__(reason)
        self.retry_at = retry_at

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (str(self), self.retry_at)


class JournalError(HeadwayError):
    """A journal that cannot be read, or that a run has parted from; names the line or step."""


class CheckpointError(HeadwayError):
    """A checkpoint is missing, incomplete, damaged, or not what its config says."""


class UnsupportedModelError(CheckpointError):
    """A sound checkpoint that asks for something the executor does not compute."""


class TokenizerError(CheckpointError):
    """A tokenizer that is missing, cannot be read, or has ids that the model has not."""


class PromptError(HeadwayError):
    """A prompt, a chat or a stop string that cannot be computed."""


class MemoryPlanError(HeadwayError):
    """What was asked for does not fit into the memory that is there."""


class GrammarCheckError(HeadwayError):
    """A grammar that could not be tried, through no fault of its own: it is worth asking again."""


class StuckError(HeadwayError):
    """A simulation in which nothing will ever happen again: a dead end found for free."""


class UnansweredError(HeadwayError):
    """Some of a generate's requests failed, and all have ended. Its __cause__ is the first error.

    answers: as generate returns them, in their order; those that failed have an error each.
    """

    def __init__(self, said: str, answers: Sequence[Any]) -> None:
        super().__init__(said, answers)
        self.said, self.answers = said, answers

    def __str__(self) -> str:
        return self.said


class EngineError(HeadwayError):
    """A request that was begun and has ended without its answer. Why is said: a step failed, the
    model's numbers are not finite, nothing is left that its sampling allows, it was cancelled."""


class EngineDownError(EngineError):
    """The engine has ended, by itself or by a fault, and takes no more."""


class DrainingError(EngineDownError):
    """The engine was asked to end, and has no fault: it is worth asking again."""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name: what was perhaps meant, or all there are."""
    if close := get_close_matches(name, known, 1, 0.5):
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(known)}"


def first_line(error: BaseException) -> str:
    """In one line: its first, or its kind."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__
