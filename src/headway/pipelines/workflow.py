"""A workflow that has begun (Workflow), and one of its items in a stage (Work)."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headway.batching.item import Sink
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER, Finish
from headway.pipelines.row import Visit, WorkflowRow


class Outcome(NamedTuple):
    """What became of an item in a stage."""

    value: Any = None  # its result
    error: BaseException | None = None  # why it has none
    finish: Finish = Finish.COMPUTED  # how it ended; also whether it was dropped
    row: RequestRow | None = None  # the ledger's; None: the stage is down
    step: StepRow | None = None  # the call in which it ended; None: in none


@dataclass(eq=False, slots=True)
class Work:
    """One item in one stage."""

    workflow: "Workflow"
    operation: int  # its place in the program
    path: tuple[int, ...]  # which element it is, of each list that was split
    value: Any
    before: "Work | None"  # the item whose end brought it here
    entered: int
    stage: int = 0
    due: int = NEVER  # the latest time at which the stage's result is of use
    planned: int = NEVER  # by when the stage has its result, if all goes as planned
    outcome: Outcome | None = None  # None: it has not ended
    ticket: Any = None  # the stage's handle on it

    @property
    def ended(self) -> int:
        """When the item ended in its stage; when it entered, if it has no row."""
        row = self.outcome.row if self.outcome else None
        return row.finished if row else self.entered


@dataclass(eq=False, slots=True)
class Workflow:
    """One item that was given to a pipeline, until all its items in stages have ended."""

    id: str
    arrived: int
    end_by: int = NEVER  # its deadline; NEVER: none
    sink: Sink | None = None  # gets its result; None: no caller wants it
    pieces: bool = False  # the sink hears of pieces, too
    open: dict[int, Work] = field(default_factory=dict)  # by id(): in stages, oldest first
    lists: dict[tuple[int, tuple[int, ...]], list[Any]] = field(default_factory=dict)
    missing: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    reached: int = 0  # stages that it has entered, or passed with an empty list
    items: int = 0  # so far, in all stages
    nanoseconds: int = 0  # device time of the items that have ended
    finish: Finish = Finish.NOT_YET
    finished: int = NEVER
    last: Work | None = None  # the item that the workflow waited for at its end
    value: Any = None
    error: BaseException | None = None

    def row(self, stages: tuple[str, ...]) -> WorkflowRow:
        """The workflow's row, once none of its items is open. stages: their names."""
        visits, at = list[Visit](), self.arrived
        for work in _trail(self.last):
            visits.append(_visit(work, at, self.finished, stages[work.stage]))
            at += sum(visits[-1][1:4])
        return WorkflowRow(
            id=self.id,
            finish=self.finish,
            arrived=self.arrived,
            finished=self.finished,
            end_by=self.end_by,
            visits=tuple(visits),
            after=self.finished - at,
            items=self.items,
            nanoseconds=self.nanoseconds,
        )


def _trail(last: Work | None) -> list[Work]:
    works = list[Work]()
    while last is not None:
        works.append(last)
        last = last.before
    return works[::-1]


def _visit(work: Work, since: int, until: int, stage: str) -> Visit:
    """A visit, from the end of the one before it. It is cut at the workflow's end, because an item
    that was dropped may end later than its workflow."""
    outcome = work.outcome or Outcome()
    row, step = outcome.row, outcome.step
    entered = min(row.arrived if row else work.entered, until)
    begun = min(row.first_scheduled, row.finished, until) if row else until
    ended = min(row.finished, until) if row else until
    given = NEVER if work.planned == NEVER else work.planned - work.entered
    batch = (step.step, step.rows) if step else (0, 0)
    return Visit(stage, entered - since, begun - entered, ended - begun, given, *batch)
