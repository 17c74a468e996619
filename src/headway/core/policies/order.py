"""Who goes first? An Order answers, once per step, over all lanes."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, merge
from itertools import chain
from operator import attrgetter
from typing import Protocol

from headway.core.sequence import Sequence
from headway.core.view import View


class Order(Protocol):
    """The order in which waiting requests are considered."""

    def rank(self, view: View) -> Iterator[Sequence]:
        """Yield the waiting, first to last. Lazy, because a step rarely needs more than a few."""
        ...


@dataclass(frozen=True, slots=True)
class FirstCome:
    """By arrival, whatever the lane."""

    def rank(self, view: View) -> Iterator[Sequence]:
        return merge(*[line.waiting for line in view.lines], key=attrgetter("number"))


@dataclass(frozen=True, slots=True)
class Priority:
    """Lanes by priority, equal ones in the order of the configuration; in a lane, by arrival."""

    def rank(self, view: View) -> Iterator[Sequence]:
        lines = sorted(view.lines, key=attrgetter("lane.priority"))
        return chain.from_iterable(line.waiting for line in lines)


@dataclass(frozen=True, slots=True)
class ShortestFirst:
    """By the most tokens that a request may hold (prompt + max_tokens), then by arrival.

    It lowers the mean wait, and lets the longest starve while shorter ones keep coming. Callers
    are believed: the length of an answer is not predicted.
    """

    def rank(self, view: View) -> Iterator[Sequence]:
        heap = [(each.limit, each.number, each) for line in view.lines for each in line.waiting]
        heapify(heap)  # linear, and a step takes few of them
        while heap:
            yield heappop(heap)[2]


ORDERS: dict[str, Order] = {  # as operators name them
    "first-come": FirstCome(),
    "priority": Priority(),
    "shortest-first": ShortestFirst(),
}
