"""By when each sequence must have started or ended (Deadlines). Checked before every step."""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headway.core.request import NEVER
from headway.core.sequences.sequence import Sequence

MAX_STALE = 64  # this many more closed entries than open ones are tolerated


class Due(NamedTuple):
    """One deadline. Sorted by time, then by arrival, and a request's start before its end."""

    at: int  # from this time on it is too late
    number: int
    ends: bool  # True: the sequence must end by then; False: it must start
    sequence: Sequence

    @property
    def is_open(self) -> bool:
        """Whether the deadline can still be missed. A request with max_tokens 0 cannot miss it once
        its last step is in flight: that step ends the request."""
        each = self.sequence
        if each.ended or (each.in_flight and not each.request.max_tokens and not each.pending):
            return False
        return self.ends or not each.has_stopped_waiting

    @property
    def words(self) -> str:
        """The error that the caller is told."""
        request = self.sequence.request
        limit = (request.end_by if self.ends else request.start_by) - request.arrived
        return f"not {'ended' if self.ends else 'started'} within {limit / 1e9:g} s of its arrival"


class Deadlines:
    """A heap of deadlines. A closed deadline stays in it until it reaches the top or most of the
    heap is closed, so a long deadline does not hold memory for long."""

    def __init__(self) -> None:
        self._heap: list[Due] = []
        self._most = MAX_STALE

    def add(self, sequence: Sequence) -> None:
        """Add the deadlines of a sequence, if it has any."""
        request = sequence.request
        if request.start_by != NEVER:
            self._push(Due(request.start_by + 1, sequence.number, False, sequence))
        if request.end_by != NEVER:  # a step that begins at that time would end after it
            self._push(Due(request.end_by, sequence.number, True, sequence))

    def _push(self, due: Due) -> None:
        if len(self._heap) >= self._most:
            self._heap = [each for each in self._heap if each.is_open]
            heapify(self._heap)
            self._most = 2 * len(self._heap) + MAX_STALE
        heappush(self._heap, due)

    @property
    def next(self) -> int:
        """When the next open deadline is missed; NEVER: there is none."""
        heap = self._heap
        while heap and not heap[0].is_open:
            heappop(heap)
        return heap[0].at if heap else NEVER

    def missed(self, now: int) -> Due | None:
        """Remove and return the first deadline that is missed by now; None: there is none."""
        return heappop(self._heap) if self.next <= now else None
