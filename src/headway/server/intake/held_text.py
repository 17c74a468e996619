"""HeldText: how much text is being turned into tokens at once, by all models together."""

from collections.abc import Iterator
from contextlib import contextmanager

from headway.server.heap import BodyTrimmer
from headway.server.protocol.problem import Problem
from headway.server.protocol.retry_after import SOON, jittered

MOST_HELD = 64 << 20  # bytes of bodies


class HeldText:
    """On the event loop's thread. trimmer: told of bodies that leave freed memory behind."""

    def __init__(self) -> None:
        self.trimmer = BodyTrimmer()
        self.size = 0  # bytes of the bodies that are being tokenized or detokenized

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count a body's bytes while it is tokenized or detokenized. Raises Problem when all such
        bodies together would exceed MOST_HELD; a body alone is always let through."""
        if self.size and self.size + size > MOST_HELD:
            message = "too much text is waiting to be tokenized"
            raise Problem(429, message, code="too_much_text", retry=jittered(SOON))
        self.size += size
        try:
            yield
        finally:
            self.size -= size
            self.trimmer.add(size)
