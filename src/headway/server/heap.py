"""What the allocator keeps of freed memory, given back to the system."""

import asyncio
import ctypes
from collections.abc import Iterable

from headway.core.batch import Event

LARGE = 1 << 18  # bytes of a body that leaves enough behind to be worth giving back
LATER = 1.0  # seconds, in which they are answered; and no more than once in so long
SCORED = 1_000  # tokens of prompts whose scores leave enough behind to be worth giving back

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone


def give_back() -> None:
    """Takes up to a tenth of the time in which a text that left so much was encoded. The
    interpreter goes on meanwhile."""
    if _trim:
        _trim(0)


class BodyTrimmer:
    """Bodies that were read, and those that were turned into tokens or text. A large one's fields,
    ids and answer leave up to 40 times its size in the front.

    That is given back a little later, when they are gone, and beside the loop: it takes up to 5 ms.
    """

    def __init__(self) -> None:
        self._due = False

    def add(self, size: int) -> None:
        """On the loop's thread."""
        if size >= LARGE and not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(LATER, self._give_back)

    def _give_back(self) -> None:
        self._due = False
        asyncio.get_running_loop().run_in_executor(None, give_back)


class ScoreTrimmer:
    """Of the engine's scores. To score a prompt takes memory for the whole vocabulary at each of
    its tokens, and malloc keeps it: 24 MB with the embedded model, after any number of prompts.

    It is given back, in 2 ms, when nothing runs: no step waits for that, and an engine that is busy
    would only ask for it again.
    """

    def __init__(self) -> None:
        self._scored = 0  # tokens, since then

    def after(self, events: Iterable[Event], running: int) -> None:
        """A step."""
        self._scored += sum([len(event.prompt_logprobs) for event in events])
        if self._scored >= SCORED and not running:
            self._scored = 0
            give_back()
