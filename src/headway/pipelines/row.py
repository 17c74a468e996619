"""Where a workflow's time went (WorkflowRow): stage by stage, and between them."""

from dataclasses import dataclass
from typing import NamedTuple

from headway.core.request import NEVER, Finish

WHOLE = Finish.COMPUTED, Finish.STOP, Finish.LENGTH


class Visit(NamedTuple):
    """One item in one stage. If a list was split, it is the item that its workflow waited for.

    Times in nanoseconds.
    """

    stage: str
    before: int  # from the end of the stage before, or from the workflow's arrival
    queue: int  # until the stage began with it
    service: int  # until its result was there
    given: int = NEVER  # from its entry to the planned time of its result; NEVER: no such time
    batch: int = 0  # number of the call, or of the LLM's step, in which it ended; 0: in none
    batch_items: int = 0  # items in that call, of all workflows


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """One workflow that has ended. Times are integer nanoseconds.

    The visits are those of the items that the workflow waited for, so that everything adds up:
    total = sum of before, queue and service over all visits, plus after.
    """

    id: str
    finish: Finish
    arrived: int
    finished: int
    end_by: int  # its deadline; NEVER: none
    visits: tuple[Visit, ...]
    after: int  # from the end of the last visit to the end of the workflow
    items: int  # its items in all stages together
    nanoseconds: int  # device time: its items' shares of their calls, those dropped included

    @property
    def total(self) -> int:
        return self.finished - self.arrived

    @property
    def good(self) -> bool:
        """Whether it was completed inside its deadline."""
        return self.finish in WHOLE and self.finished <= self.end_by

    @property
    def queue(self) -> int:
        return sum([visit.queue for visit in self.visits])

    @property
    def service(self) -> int:
        return sum([visit.service for visit in self.visits])

    @property
    def between(self) -> int:
        """Time in no stage: after arrival, between stages, and until the workflow's end."""
        return sum([visit.before for visit in self.visits]) + self.after

    def check(self) -> None:
        """Raise AssertionError unless each nanosecond is in exactly one account."""
        parts = [each for visit in self.visits for each in visit[1:4]]
        assert min([self.after, *parts]) >= 0, self
        assert self.queue + self.service + self.between == self.total, self
