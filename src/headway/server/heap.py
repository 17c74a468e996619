"""Give freed memory, which the allocator keeps, back to the system."""

import asyncio
import ctypes
from collections.abc import Iterable

from headway.core.batch import Event

LARGE = 1 << 18  # bytes of a body; larger ones leave enough freed memory to give back
LATER = 1.0  # seconds until then, in which they are answered; also the least between two
SCORED = 1_000  # prompt tokens; the scores of more leave enough freed memory to give back

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone


def give_back() -> None:
    """Trim the heap. Takes up to a tenth of the time that encoding a text took which left so much;
    other threads run meanwhile."""
    if _trim:
        _trim(0)


class BodyTrimmer:
    """Trims the heap after large bodies, whose fields, ids and answers leave up to 40 times their
    size in this process.

    It does so a little later, when they are gone, and beside the loop: it takes up to 5 ms.
    """

    def __init__(self) -> None:
        self._due = False

    def add(self, size: int) -> None:
        """A body of this many bytes was read or tokenized. On the loop's thread."""
        if size >= LARGE and not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(LATER, self._give_back)

    def _give_back(self) -> None:
        self._due = False
        asyncio.get_running_loop().run_in_executor(None, give_back)


class ScoreTrimmer:
    """Trims the engine's heap after prompts were scored. Scoring takes memory for the whole
    vocabulary at each token, and malloc keeps it: 24 MB with the embedded model.

    It does so when nothing runs. It takes 2 ms, for which no step then waits; and a busy engine
    would only need the memory again.
    """

    def __init__(self) -> None:
        self._scored = 0  # prompt tokens since the last time

    def after(self, events: Iterable[Event], running: int) -> None:
        """A step has ended with these events; so many sequences still run."""
        self._scored += sum([len(event.prompt_logprobs) for event in events])
        if self._scored >= SCORED and not running:
            self._scored = 0
            give_back()
