"""Whose blocks are taken? A Preempt answers, once in a step that runs out of blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from headway.core.sequence import Sequence
from headway.core.view import View


class Preempt(Protocol):
    """The order in which running sequences lose their blocks when memory is short."""

    def victims(self, view: View) -> Iterator[Sequence]:
        """Yield the running, the first victim first. The plan skips those it must not take."""
        ...


@dataclass(frozen=True, slots=True)
class Youngest:
    """The last to arrive is taken first; the last victim only when nobody else is left."""

    def victims(self, view: View) -> Iterator[Sequence]:
        # A generator, so that only a step that lacks blocks sorts.
        yield from sorted(view.running, key=lambda s: (s.number == view.last_victim, -s.number))
