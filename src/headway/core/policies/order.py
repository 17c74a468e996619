"""Who goes first? An Order answers, once per step, over all lanes."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, merge
from itertools import chain
from operator import attrgetter
from typing import Protocol

from headway.core.sequences.sequence import Sequence
from headway.core.view import View


class Order(Protocol):
    """The order in which requests are considered, while the step has room."""

    def rank(self, view: View, running: Collection[Sequence]) -> Iterator[Sequence]:
        """Yield these running sequences, which have prompts to compute or may miss a step, and all
        waiting ones, first to last. One that is named twice has the first of its places. Lazy,
        because a step rarely needs more than a few."""
        ...


@dataclass(frozen=True, slots=True)
class FirstCome:
    """The running first, then the waiting by arrival, whatever the lane; the relegated last."""

    def rank(self, view: View, running: Collection[Sequence]) -> Iterator[Sequence]:
        hopeful = _by_number([line.waiting for line in view.lines if line.waiting])
        late = _by_number([line.relegated for line in view.lines if line.relegated])
        return chain(running, hopeful, late)


def _by_number(parts: list[list[Sequence]]) -> Iterable[Sequence]:
    """These lists, each by number, as one."""
    return merge(*parts, key=attrgetter("number")) if len(parts) > 1 else chain(*parts)


@dataclass(frozen=True, slots=True)
class Priority:
    """The running first, then lanes by priority, equal ones in the order of the configuration; in a
    lane, by arrival. The relegated of all lanes come last."""

    def rank(self, view: View, running: Collection[Sequence]) -> Iterator[Sequence]:
        lines = sorted(view.lines, key=attrgetter("lane.priority"))
        parts = chain([line.waiting for line in lines], [line.relegated for line in lines])
        return chain(running, chain.from_iterable(parts))


@dataclass(frozen=True, slots=True)
class ShortestFirst:
    """The running first, then by the most tokens that a request may hold (prompt + max_tokens),
    then by arrival; the relegated last.

    It lowers the mean wait, and lets the longest starve while shorter ones keep coming. Callers
    are believed: the length of an answer is not predicted.
    """

    def rank(self, view: View, running: Collection[Sequence]) -> Iterator[Sequence]:
        yield from running
        heap = [(each.limit, each.number, each) for line in view.lines for each in line.waiting]
        heapify(heap)  # linear, and a step takes few of them
        while heap:
            yield heappop(heap)[2]
        for line in view.lines:
            yield from line.relegated


ORDERS: dict[str, Order] = {  # as operators name them
    "first-come": FirstCome(),
    "priority": Priority(),
    "shortest-first": ShortestFirst(),
}
