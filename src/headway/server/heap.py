"""Give memory that was freed, but that the allocator keeps, back to the system."""

import asyncio
import ctypes
from collections.abc import Iterable

from headway.core.batch import Event

LARGE = 1 << 18  # bytes of a body; larger bodies leave enough freed memory to give back
LATER = 1.0  # seconds before a trim, so that answers go first; also the least between two trims
SCORED = 1_000  # scored prompt tokens that leave enough freed memory to give back

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone


def give_back() -> None:
    """Trim the heap. This takes up to a tenth of the time that it took to encode the text that left
    the memory. Other threads run meanwhile."""
    if _trim:
        _trim(0)


class BodyTrimmer:
    """Trims the heap after large bodies. A body's fields, ids and answers leave up to 40 times its
    size in this process.

    It trims LATER seconds afterwards, when they are gone, and in a thread: a trim takes up to 5 ms.
    """

    def __init__(self) -> None:
        self._due = False

    def add(self, size: int) -> None:
        """Note that a body of this many bytes was read or tokenized. On the loop's thread."""
        if size >= LARGE and not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(LATER, self._give_back)

    def _give_back(self) -> None:
        self._due = False
        asyncio.get_running_loop().run_in_executor(None, give_back)


class ScoreTrimmer:
    """Trims the engine's heap after prompts were scored. Scoring needs memory for the whole
    vocabulary per token, and malloc keeps it: 24 MB with the embedded model.

    It trims only when no sequence runs. The trim takes 2 ms, which then delays no step, and a busy
    engine would only need the memory again.
    """

    def __init__(self) -> None:
        self._scored = 0  # prompt tokens scored since the last trim

    def after(self, events: Iterable[Event], running: int) -> None:
        """Note a step's events, and trim if enough was scored and nothing runs. running: how many
        sequences still run."""
        self._scored += sum([len(event.prompt_logprobs) for event in events])
        if self._scored >= SCORED and not running:
            self._scored = 0
            give_back()
