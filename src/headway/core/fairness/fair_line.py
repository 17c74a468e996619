"""A waiting line that several tenants share (FairLine)."""

from bisect import bisect_left, insort
from collections.abc import Mapping
from operator import attrgetter

from headway.core.fairness.token_counters import TokenCounters
from headway.core.lane import Lane, Line
from headway.core.sequences.sequence import RELEGATED, Sequence

_number = attrgetter("number")
Queues = dict[str, list[Sequence]]  # by tenant, each by number; none is empty


class FairLine(Line):
    """A line that knows what waits for each tenant, and how much service each tenant has had.

    Generated tokens are counted only when needed: when a sequence leaves, when a tenant comes back,
    and when slots are given to one of several tenants.
    """

    __slots__ = ("_hopeful", "_last", "_late", "_running", "counters")

    def __init__(self, lane: Lane, weights: Mapping[str, int]) -> None:
        super().__init__(lane)
        self.counters = TokenCounters(weights)
        self._hopeful: Queues = {}
        self._late: Queues = {}  # relegated
        self._last = ""  # the tenant whose request in time was the last to leave the line
        self._running = dict[int, Sequence]()  # by number

    @property
    def is_contended(self) -> bool:
        """Whether requests of several tenants wait side by side."""
        return len(self._hopeful) > 1 or len(self._late) > 1

    def queues(self, *, relegated: bool) -> Mapping[str, list[Sequence]]:
        """The waiting sequences by tenant, each tenant's in order of arrival."""
        return self._late if relegated else self._hopeful

    def count(self) -> None:
        """Bring the counters up to date."""
        for sequence in self._running.values():
            self.counters.count(sequence)

    def insert(self, sequence: Sequence) -> None:
        """As Line.insert. A tenant with no waiting request in time is lifted to the least counter
        of the tenants that have one or, if none has, to that of the tenant that waited last."""
        tenant, queues = sequence.request.tenant, self._queues_of(sequence)
        if tenant not in queues and queues is self._hopeful:
            others = [*queues] or [self._last]
            if others != [tenant]:
                self.count()
                self.counters.lift(tenant, others)
        super().insert(sequence)
        insort(queues.setdefault(tenant, []), sequence, key=_number)

    def remove(self, sequence: Sequence) -> None:
        super().remove(sequence)
        tenant, queues = sequence.request.tenant, self._queues_of(sequence)
        queue = queues[tenant]
        del queue[bisect_left(queue, sequence.number, key=_number)]
        if queues is self._hopeful:
            self._last = tenant
        if not queue:
            del queues[tenant]

    def join(self, sequence: Sequence) -> None:
        super().join(sequence)
        self.counters.join(sequence)
        self._running[sequence.number] = sequence

    def leave(self, sequence: Sequence) -> None:
        super().leave(sequence)
        self.counters.count(sequence)
        del self._running[sequence.number]

    def check(self) -> None:
        """Raise AssertionError if its queues are not those of the line."""
        assert len(self._running) == self.running
        for part, queues in ((self.waiting, self._hopeful), (self.relegated, self._late)):
            assert sorted([s for queue in queues.values() for s in queue], key=_number) == part
            for tenant, queue in queues.items():
                assert queue == sorted(queue, key=_number) != []
                assert {s.request.tenant for s in queue} == {tenant}

    def _queues_of(self, sequence: Sequence) -> Queues:
        return self._late if sequence.tier == RELEGATED else self._hopeful
