"""The exceptions that users see. Each message is one line that names the cause and the remedy.

HeadwayError
|-- SettingError               a setting that cannot be obeyed (also a ValueError)
|-- RefusedError               a request was not accepted; may say when to try again
|-- JournalError               a journal cannot be read, or a replay has diverged from it
|-- CheckpointError            a checkpoint is missing, incomplete or damaged
|   |-- UnsupportedModelError  a sound checkpoint needs something that the executor lacks
|   `-- TokenizerError         a tokenizer is missing, unreadable, or belongs to another model
|-- PromptError                a prompt, a chat or a stop string cannot be used
|-- MemoryPlanError            what was asked for does not fit into the free memory
|-- GrammarCheckError          the check of a grammar was cut off: try again
|-- StuckError                 a simulation in which nothing can ever happen again
|-- WorkerLostError            a worker process of a command was killed
|-- DeadlineError              a request missed its own deadline (also a TimeoutError)
|-- UnansweredError            some requests of a generate() failed; has all the answers
`-- EngineError                the engine could not finish a request that it had begun
    `-- EngineDownError        the engine has ended; __cause__ says why
        `-- DrainingError      the engine was asked to end: try another engine or the next one
"""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any


class HeadwayError(Exception):
    """The base class of all of these. The command line prints it without a traceback."""


class SettingError(HeadwayError, ValueError):
    """A setting that cannot be obeyed."""


class RefusedError(HeadwayError):
    """A request was not accepted.

    retry_at: when to try again, in nanoseconds of the engine's clock; NEVER: do not try again.
    """

    def __init__(self, reason: str, retry_at: int) -> None:
        super().__init__(reason)
        self.retry_at = retry_at

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (str(self), self.retry_at)


class JournalError(HeadwayError):
    """A journal cannot be read, or a replay has diverged from it. Names the line or the step."""


class CheckpointError(HeadwayError):
    """A checkpoint is missing, incomplete, damaged, or does not match its config.json."""


class UnsupportedModelError(CheckpointError):
    """A sound checkpoint that needs something the executor does not compute."""


class TokenizerError(CheckpointError):
    """A tokenizer is missing, cannot be read, or has token ids that the model does not have."""


class PromptError(HeadwayError):
    """A prompt, a chat or a stop string cannot be used."""


class MemoryPlanError(HeadwayError):
    """What was asked for does not fit into the free memory."""


class GrammarCheckError(HeadwayError):
    """The check of a grammar was cut off, through no fault of the grammar: try again."""


class StuckError(HeadwayError):
    """A simulation is stuck: requests wait, and nothing can ever happen again."""


class WorkerLostError(HeadwayError):
    """A worker process was killed, most often by the system for lack of memory."""


class DeadlineError(HeadwayError, TimeoutError):
    """A request, or an item of a batcher, was dropped because its own deadline had passed."""


class UnansweredError(HeadwayError):
    """Some requests of a generate() failed, and all have ended. __cause__ is the first error.

    answers: what generate() would have returned; each failed answer has an `error`.
    """

    def __init__(self, message: str, answers: Sequence[Any]) -> None:
        super().__init__(message, answers)
        self.message, self.answers = message, answers

    def __str__(self) -> str:
        return self.message


class EngineError(HeadwayError):
    """A request that had begun ended without its answer. The message says why: a step failed, the
    model computed NaN, the sampling allows no token, or the request was cancelled."""


class EngineDownError(EngineError):
    """The engine has ended, on request or after a fault, and takes no more requests."""


class DrainingError(EngineDownError):
    """The engine was asked to end. This is no fault: try another engine or the next one."""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name: the closest known name, or all of them."""
    if close := get_close_matches(name, known, 1, 0.5):
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(known)}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its class if it has none. An error of
    the user's own class may even raise when it is asked for its message."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []
    return (lines or [type(error).__name__])[0]
