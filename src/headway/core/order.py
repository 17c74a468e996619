"""Who goes first? Asked once per step, over all lanes."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import Protocol

from headway.core.request import Sequence
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
