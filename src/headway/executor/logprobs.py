"""LogprobColumns: log-probabilities of consecutive tokens, in columns.

A position with its twenty most likely tokens takes 248 bytes. With an object for each pair it would
take ten times that, and the scores of a long prompt would fill the memory of the server's front.
"""

from array import array
from collections.abc import Sequence
from typing import overload

from headway.core.batch import Logprob


class LogprobColumns(Sequence[Logprob]):
    """A sequence of Logprob. Once an executor has returned it, it is not changed any more.

    position      0         1         2
    drawn         x         x         x             float64
    ids           r r r     r r r     r r r         int32, width for each position
    values        x x x     x x x     x x x         float64
    """

    __slots__ = ("drawn", "ids", "values", "width")

    def __init__(
        self, drawn: bytes = b"", ids: bytes = b"", values: bytes = b"", width: int = 0
    ) -> None:
        """Take the columns' bytes. width: number of most likely tokens at each position."""
        self.drawn, self.ids, self.values = array("d", drawn), array("i", ids), array("d", values)
        self.width = width
        assert len(self.ids) == len(self.values) == width * len(self.drawn)

    def extend(self, more: Sequence[Logprob]) -> None:
        """Append positions of the same width."""
        if not isinstance(more, LogprobColumns):
            pairs = [pair for each in more for pair in each.top]
            drawn = array("d", [each.sampled for each in more])
            ids, values = array("i", [id for id, _ in pairs]), array("d", [x for _, x in pairs])
            width = len(pairs) // len(more) if more else self.width
            more = LogprobColumns(drawn.tobytes(), ids.tobytes(), values.tobytes(), width)
        if more:
            assert more.width == self.width or not self.drawn
            self.width = more.width
            self.drawn += more.drawn
            self.ids += more.ids
            self.values += more.values

    def clear(self) -> None:
        """Drop all positions."""
        for column in (self.drawn, self.ids, self.values):
            del column[:]

    def __len__(self) -> int:
        return len(self.drawn)

    @overload
    def __getitem__(self, at: int) -> Logprob: ...

    @overload
    def __getitem__(self, at: slice) -> "LogprobColumns": ...

    def __getitem__(self, at: int | slice) -> "Logprob | LogprobColumns":
        """A position, or a slice of step 1."""
        if isinstance(at, slice):
            begin, end, step = at.indices(len(self.drawn))
            assert step == 1
            cells = slice(begin * self.width, max(begin, end) * self.width)
            drawn, ids, values = self.drawn[begin:end], self.ids[cells], self.values[cells]
            return LogprobColumns(drawn.tobytes(), ids.tobytes(), values.tobytes(), self.width)
        sampled = self.drawn[at]
        begin = (at % len(self.drawn)) * self.width
        cells = slice(begin, begin + self.width)
        return Logprob(sampled, tuple(zip(self.ids[cells], self.values[cells], strict=True)))
