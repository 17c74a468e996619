"""Whose blocks are taken? Asked once in a step that runs out of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from headway.core.sequence import Sequence
from headway.core.view import View


class Preempt(Protocol):
    def victims(self, view: View) -> Iterator[Sequence]:
        """The running, first to be taken first. The scheduler leaves out whom it must."""
        ...


@dataclass(frozen=True, slots=True)
class Youngest:
    """Last come, first taken; but the last victim only when nobody else is left."""

    def victims(self, view: View) -> Iterator[Sequence]:
        # A generator, so that a step with blocks enough never sorts.
        yield from sorted(view.running, key=lambda s: (s.number == view.last_victim, -s.number))
