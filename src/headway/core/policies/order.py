"""Who goes first? Asked once per step, over all lanes."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, merge
from itertools import chain
from operator import attrgetter
from typing import Protocol

from headway.core.sequence import Sequence
from headway.core.view import View


class Order(Protocol):
    def rank(self, view: View) -> Iterator[Sequence]:
        """The waiting, first to last; lazy, because a step rarely asks for more than a few."""
        ...


@dataclass(frozen=True, slots=True)
class FirstCome:
    """By number, whichever lane it is in."""

    def rank(self, view: View) -> Iterator[Sequence]:
        return merge(*[line.waiting for line in view.lines], key=attrgetter("number"))


@dataclass(frozen=True, slots=True)
class Priority:
    """Lanes by their priority, then in the order they were configured; inside one, by number."""

    def rank(self, view: View) -> Iterator[Sequence]:
        lines = sorted(view.lines, key=attrgetter("lane.priority"))
        return chain.from_iterable(line.waiting for line in lines)


@dataclass(frozen=True, slots=True)
class ShortestFirst:
    """By the tokens that a request may hold at most, then by number.

    It takes callers at their word (prompt + max_tokens), lowers the mean wait, and lets the
    longest starve while shorter ones keep coming.
    """

    def rank(self, view: View) -> Iterator[Sequence]:
        heap = [(each.limit, each.number, each) for line in view.lines for each in line.waiting]
        heapify(heap)  # linear; a step takes few of them
        while heap:
            yield heappop(heap)[2]


ORDERS: dict[str, Order] = {  # as operators name them
    "first-come": FirstCome(),
    "priority": Priority(),
    "shortest-first": ShortestFirst(),
}
