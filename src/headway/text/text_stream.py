"""TextStream: turn token ids into text as soon as it is certain, and find stop strings."""

from collections.abc import Callable, Iterable, Sequence

from headway.errors import PromptError

UNFINISHED = "\ufffd"  # what an incomplete UTF-8 sequence decodes to
BYTES = 4  # the most bytes of a character
PENDING = 16  # most ids that wait for the rest of a character: BYTES x BYTES


class TextStream:
    """Decode an answer while it is generated. The decoder is passed in.

    text      |<------------- certain ----------------->|
              |<---- given out ----->|<- may begin a -->|
                                         stop string
    ids       | dropped |<- window --------------------------------------->|
              window:   |<- read: whole characters ->|<- perhaps not yet ->|

    Each push decodes the window, whose size is bounded, so n ids take time proportional to n. The
    window begins with ids that were already read, because a decoder may treat the first id
    differently (an idea from text-generation-inference).
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        stop: Iterable[str] = (),
        min_tokens: int = 0,
        after: Sequence[int] = (),
    ) -> None:
        """stop: strings that end the text. min_tokens: ids within which no stop string counts.
        after: the ids before the text, such as a prompt's: the text continues theirs.

        Raises PromptError for an empty stop string.
        """
        self._decode, self._min_tokens = decode, min_tokens
        self._stop = tuple(stop)
        if not all(self._stop):
            raise PromptError("a stop string is empty")
        self._longest = max(map(len, self._stop), default=0)
        self._window = _before(decode, after)
        self._read = len(self._window)  # ids of the window that were read
        self._tail = decode(self._window) if self._window else ""  # the window's text
        self._known = len(self._tail)  # its characters that are in self.text, or before it
        self._count = 0  # all ids so far
        self._emitted = 0  # characters given out
        self.text = ""
        self.kept = 0  # ids up to the one that completed a stop string; 0: none did

    @property
    def seeks(self) -> bool:
        """Whether there are stop strings that may end the text."""
        return bool(self._stop)

    def push(self, ids: Iterable[int]) -> str:
        """Add ids and return the text that can now be given out; nothing after a stop string."""
        if not self._stop:
            self._take(ids)
            new, self._emitted = self.text[self._emitted :], len(self.text)
            return new
        for id in ids:
            if self.kept:
                break
            self._take((id,))
        return self._say(len(self.text) - (0 if self.kept else self._withheld()))

    def end(self) -> str:
        """Return the text that was held back. No more ids may follow."""
        if not self.kept and self._known < len(self._tail):
            self._extend(self._tail, len(self._tail), self._window, len(self._window))
        return self._say(len(self.text))

    def _say(self, upto: int) -> str:
        new = self.text[self._emitted : upto]
        self._emitted = max(self._emitted, upto)
        return new

    def _take(self, ids: Iterable[int]) -> None:
        new = tuple(ids)
        window = [*self._window, *new]
        tail = self._decode(window)
        if len(new) > 1 and UNFINISHED in tail:
            # A character may end at any of these ids, and byte fallback decodes the bytes of an
            # incomplete one differently beside others: the text must not depend on the grouping.
            for id in new:
                self._take((id,))
        elif not tail.endswith(UNFINISHED):
            self._count += len(new)
            # A window must not hold only skipped ids, or the next id would lose its space. A
            # leading space also decodes to nothing, but two of them do not.
            if tail == self._tail and not self._decode(2 * new):
                return
            self._extend(tail, len(tail), window, self._read)
        else:
            self._wait(tail, window)

    def _wait(self, tail: str, window: list[int]) -> None:
        """Keep the latest id in the window: it may be part of a character."""
        self._count += 1
        if tail == self._tail and not self._decode(window[-1:]):
            return  # the id has no text, like a special token that is skipped
        self._tail, self._window = tail, window
        if len(window) - self._read > PENDING:
            self._settle()

    def _settle(self) -> None:
        """Shorten a window with more ids than one character can have: all but its end is certain.

        Split the window at an id. If the texts of both parts add up to the whole, no character
        spans the split, and the text before it is certain. If no id near the end is such a split,
        the decoder works on bytes, and only the last character can still change. Then the window
        may begin at any id that is at least a character's bytes before the end.
        """
        tail, window = self._tail, self._window
        for at in range(len(window) - 1, 0, -1):
            rest = self._decode(window[at:])
            if rest and self._decode(window[:at]) + rest == tail:
                return self._extend(tail, len(tail) - len(rest), window, at)
            if len(rest) >= BYTES:
                return self._extend(tail, len(tail) - 1, window, at)

    def _extend(self, tail: str, upto: int, window: list[int], at: int) -> None:
        """Add the window's text up to `upto`, which is certain, and begin the window at id `at`."""
        new = len(self.text) + 1  # the earliest end of a stop string that ends in the new text
        self.text += tail[self._known : upto]
        left = len(tail) - upto
        self._window = window = window[at:]
        self._tail = self._decode(window)
        self._known = len(self._tail) - left
        self._read = 0 if left else len(window)
        if not self._stop or self._count <= self._min_tokens:
            return
        begins = [(stop, max(self._emitted, new - len(stop))) for stop in self._stop]
        found = [at for stop, begin in begins if (at := self.text.find(stop, begin)) >= 0]
        if found:
            self.text, self.kept = self.text[: min(found)], self._count

    def _withheld(self) -> int:
        """Length of the longest end of the text that may become a stop string.

        It lies in text that was not given out yet, because otherwise it would have been held back
        earlier. So each size tried in vain is one character that is given out and not tried again.
        """
        size = min(self._longest - 1, len(self.text) - self._emitted)
        while size > 0:
            end = self.text[-size:]
            if any(len(stop) > size and stop.startswith(end) for stop in self._stop):
                break
            size -= 1
        return size


def _before(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> list[int]:
    """The fewest last ids with a text of whole characters; none if the last PENDING have none.

    SentencePiece drops the space at the beginning of a text, and behind these ids nothing is one.
    """
    for count in range(1, min(len(ids), PENDING) + 1):
        last = list(ids[-count:])
        # A leading space decodes to nothing, but two of them do not.
        if UNFINISHED not in decode(last) and decode(2 * last):
            return last
    return []
