"""Whose turn it is where tenants share a lane (Fairly)."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from headway.core.fairness.fair_line import FairLine
from headway.core.policies.order import FirstCome, Order, Priority
from headway.core.sequences.sequence import RELEGATED, Sequence
from headway.core.view import View
from headway.errors import SettingError

MOST_WEIGHT = 1_000


@dataclass(frozen=True, slots=True)
class Fairly:
    """Share the places of another order fairly among the tenants of each lane.

    Where that order has a waiting request of a lane, the lane's tenant with the least service so
    far goes, with the first of its requests in that order. If two tenants have had the same, the
    one whose oldest request came first goes. Relegated requests share the places of the relegated.
    A running request keeps its place.

    The counters are those of VTC (Sheng et al., OSDI 2024; TokenCounters). While two tenants of a
    lane have requests waiting all the time, their service, over their weights, differs by at most

        2 x max(w_p x longest prompt, w_a x tokens of the running) / the lesser weight

    The tokens of the running are their prompts and answers at their longest. Three kinds of waiting
    requests do not count: relegated ones, those that wait for a prompt that they share, and those
    that do not fit into memory and are overtaken.
    """

    order: Order = FirstCome()
    weights: Mapping[str, int] = field(default_factory=dict)  # by tenant; 1 for all others

    def __post_init__(self) -> None:
        if isinstance(self.order, Fairly):
            raise SettingError("an order is made fair once, not twice")
        for tenant, weight in self.weights.items():
            if not 1 <= weight <= MOST_WEIGHT:
                raise SettingError(
                    f"the weight of tenant {tenant!r} is {weight}: it must be from 1 to "
                    f"{MOST_WEIGHT}"
                )

    def rank(self, view: View, running: Collection[Sequence]) -> Iterator[Sequence]:
        ranked = self.order.rank(view, running)
        lines = [line for line in view.lines if isinstance(line, FairLine) and line.is_contended]
        if not lines:
            return ranked
        by_arrival = isinstance(self.order, FirstCome | Priority)
        return iter(_Places(ranked, running, lines, by_arrival))


class _Places:
    """The places of an order, and the requests that take them. A place's request is a candidate."""

    def __init__(
        self,
        ranked: Iterator[Sequence],
        running: Collection[Sequence],
        lines: list[FairLine],
        by_arrival: bool,
    ) -> None:
        """by_arrival: in a lane, the order is by arrival, so candidates need not be looked for."""
        self._ranked, self._running = ranked, frozenset(running)
        self._lines = {line.lane.name: line for line in lines}
        self._by_arrival = by_arrival
        self._turns: dict[tuple[str, bool], _Turns] = {}  # by lane, and whether relegated
        self._seen_ahead = deque[Sequence]()  # places that a search for candidates has passed
        self._found: dict[tuple[str, bool, str], deque[Sequence]] = {}  # candidates, by tenant
        # Requests that are or were candidates: an order may name one twice.
        self._named: set[Sequence] = set()

    def __iter__(self) -> Iterator[Sequence]:
        while True:
            place = self._seen_ahead.popleft() if self._seen_ahead else self._look()
            if place is None:
                return
            if self._is_shared(place):
                if (chosen := self._turns_of(place).take()) is not None:
                    yield chosen
            else:
                yield place

    def _is_shared(self, place: Sequence) -> bool:
        return place.request.lane in self._lines and place not in self._running

    def _turns_of(self, place: Sequence) -> "_Turns":
        lane, relegated = place.request.lane, place.tier == RELEGATED
        if (lane, relegated) not in self._turns:
            line = self._lines[lane]
            queues = line.queues(relegated=relegated)
            candidates = {
                tenant: iter(queue) if self._by_arrival else self._search(lane, relegated, tenant)
                for tenant, queue in queues.items()
            }
            self._turns[lane, relegated] = _Turns(line, queues, candidates)
        return self._turns[lane, relegated]

    def _search(self, lane: str, relegated: bool, tenant: str) -> Iterator[Sequence]:
        """Yield the tenant's requests in order. The order is read ahead no further than needed."""
        found = self._found.setdefault((lane, relegated, tenant), deque())
        while True:
            while not found:
                if (place := self._look()) is None:
                    return
                self._seen_ahead.append(place)
            yield found.popleft()

    def _look(self) -> Sequence | None:
        """The next place of the order; None: there are no more."""
        place = next(self._ranked, None)
        if place is None or self._by_arrival or not self._is_shared(place):
            return place
        if place not in self._named:
            self._named.add(place)
            request = place.request
            key = request.lane, place.tier == RELEGATED, request.tenant
            self._found.setdefault(key, deque()).append(place)
        return place


class _Turns:
    """Whose turn it is in one lane, for one step."""

    def __init__(
        self,
        line: FairLine,
        queues: Mapping[str, list[Sequence]],
        candidates: dict[str, Iterator[Sequence]],
    ) -> None:
        line.count()
        self._counters, self._candidates = line.counters, candidates
        self._heap = [
            (self._counters.of(tenant), queue[0].number, tenant) for tenant, queue in queues.items()
        ]
        heapify(self._heap)
        self._last: Sequence | None = None  # named last; its tenant is the heap's first

    def take(self) -> Sequence | None:
        """The next request of the tenant with the least service; None: all are named.

        The request named before counts as joined. If it did not fit, its tenant has its next turn
        as if it had, so that others are tried.
        """
        if (last := self._last) is not None:
            had, oldest, tenant = self._heap[0]
            price = self._counters.of_prompt(last, last.scheduled)
            heapreplace(self._heap, (had + price, oldest, tenant))
        self._last = None
        while self._heap and self._last is None:
            self._last = next(self._candidates[self._heap[0][2]], None)
            if self._last is None:
                heappop(self._heap)
        return self._last
