"""Course: moves a pipeline's workflows through the stages. Callers hand in the time.

A live pipeline and a simulated one run the same course. They differ in the stages' ports.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from headway.core.admission import Refuse
from headway.core.request import Finish
from headway.errors import DeadlineError, PromptError, RefusedError
from headway.pipelines.graph import Call, Join, Program, Split
from headway.pipelines.pace import Pace, needs
from headway.pipelines.row import WorkflowRow
from headway.pipelines.split import Entry, Splitting
from headway.pipelines.workflow import Outcome, Work, Workflow


class Port(Protocol):
    """A stage. It takes items, and reports each item's end to Course.ended, never within a call."""

    def offer(self, works: Sequence[Work]) -> None:
        """Enter these items together, all or none, and set their tickets. May raise."""
        ...

    def drop(self, works: Sequence[Work]) -> None:
        """Drop items that are no longer wanted. Their ends are reported all the same."""
        ...

    def drain(self) -> float:
        """Prompt tokens of the stage's line that start per second; 0: not known yet."""
        ...


class Place(NamedTuple):
    """A stage as the course sees it."""

    name: str
    port: Port
    pace: Pace


class Course:
    """Moves workflows through the stages. One thread at a time may use it. The caller delivers the
    answers afterwards."""

    def __init__(
        self,
        program: Program,
        places: Sequence[Place],
        splitting: Splitting,
        rows: Callable[[WorkflowRow], object],
    ) -> None:
        """rows: gets the row of each workflow, once no stage holds any of its items."""
        self.program, self.places, self.splitting = program, tuple(places), splitting
        self._names = tuple([place.name for place in places])
        self._paces = [place.pace for place in places]
        self._rows = rows
        self._answers = list[Workflow]()
        self.open = 0  # workflows whose row was not handed out yet

    # -- in

    def refuse(self, now: int) -> Refuse | None:
        """The refusal of a workflow, if a line on its way is full: the slowest to drain counts.

        The door refuses it, because a refusal in the middle would waste the work done before.
        """
        full = [place for place in self.places if place.pace.is_full]
        if not full:
            return None
        times = [place.pace.drained(place.port.drain()) for place in full]
        seconds, place = max(zip(times, full, strict=True), key=lambda each: each[0])
        reason = f"the line of {place.name!r} is full: {place.pace.expected:.0f} items are before "
        reason += f"it or on their way to it; try again in {seconds:.2g} s"
        return Refuse(reason, now + int(seconds * 1e9))

    def begin(self, workflow: Workflow, value: Any, now: int) -> None:
        """Begin a workflow that was not refused."""
        self.open += 1
        for pace in self._paces:
            pace.coming += 1
        self._go_on(workflow, [(0, (), value)], None, now)

    def ended(self, work: Work, outcome: Outcome, now: int) -> None:
        """Take the end of an item in its stage, dropped or not, and move its workflow on."""
        workflow, work.outcome = work.workflow, outcome
        del workflow.open[id(work)]
        self._paces[work.stage].leave(outcome.row, outcome.step)
        workflow.nanoseconds += outcome.row.nanoseconds if outcome.row else 0
        if workflow.finish:
            self._settle(workflow)
        elif outcome.finish is Finish.EXPIRED or now >= workflow.end_by:
            late = f"the workflow's deadline was over in stage {self._names[work.stage]!r}"
            self._end(workflow, Finish.EXPIRED, now, work, error=DeadlineError(late))
        elif outcome.error is not None:
            self._end(workflow, outcome.finish, now, work, error=outcome.error)
        else:
            self._go_on(workflow, [(work.operation, work.path, outcome.value)], work, now)

    def cancel(self, workflow: Workflow, now: int) -> None:
        """End a workflow whose result is no longer wanted."""
        if not workflow.finish:
            furthest = max(workflow.open.values(), key=lambda work: work.operation)
            self._end(workflow, Finish.CANCELLED, now, furthest)

    def is_last(self, work: Work) -> bool:
        """Whether the item's result is its workflow's result."""
        return work.operation == len(self.program.operations)

    # -- through the program

    def _go_on(
        self,
        workflow: Workflow,
        items: list[tuple[int, tuple[int, ...], Any]],
        before: Work | None,
        now: int,
    ) -> None:
        """Move items to the stages that they enter next. items: place in program, path, value."""
        entering = dict[int, list[Work]]()
        try:
            while items:
                at, path, value = items.pop()
                if at == len(self.program.operations):
                    self._end(workflow, Finish.COMPUTED, now, before, value=value)
                    return
                match self.program.operations[at]:
                    case Call(stage):
                        work = Work(workflow, at + 1, path, value, before, now, stage)
                        entering.setdefault(stage, []).append(work)
                    case Split(join):
                        items += self._split(workflow, (at, join), path, value, before)
                    case Join():
                        items += _joined(workflow, at, path, value)
            for stage, works in entering.items():
                self._enter(workflow, stage, works, now)
        except Exception as error:
            self._end(workflow, _finish_of(error), now, before, error=error)

    def _split(
        self,
        workflow: Workflow,
        at: tuple[int, int],
        path: tuple[int, ...],
        value: Any,
        before: Work | None,
    ) -> list[tuple[int, tuple[int, ...], Any]]:
        """The elements, the last one first. at: the places of this split and of its join."""
        place, join = at
        if not isinstance(value, list | tuple):
            whose = f"stage {self._names[before.stage]!r} gave" if before else "the pipeline got"
            raise PromptError(f"each() runs over a list, and {whose} a {type(value).__name__}")
        if not value:
            return [(join + 1, path, [])]
        workflow.lists[join, path] = [None] * len(value)
        workflow.missing[join, path] = len(value)
        return [(place + 1, (*path, i), value[i]) for i in reversed(range(len(value)))]

    def _enter(self, workflow: Workflow, stage: int, works: list[Work], now: int) -> None:
        self._pass_by(workflow, stage)
        if workflow.reached <= stage:
            self._paces[stage].reached(brings=True)
        self._reach(workflow, stage + 1)
        expected = needs(self._paces)
        entry = Entry(workflow.arrived, now, workflow.end_by, stage)
        due, planned = self.splitting.due(entry, expected), self.splitting.planned(entry, expected)
        for work in works:
            work.due, work.planned = due, planned
        place = self.places[stage]
        place.port.offer(works)
        place.pace.enter(len(works))
        workflow.items += len(works)
        workflow.open.update({id(work): work for work in works})

    def _pass_by(self, workflow: Workflow, stage: int) -> None:
        """It brings nothing to those stages before this one in which it has not been."""
        for pace in self._paces[workflow.reached : stage]:
            pace.reached(brings=False)

    def _reach(self, workflow: Workflow, stage: int) -> None:
        """Note that the workflow is no longer on its way to the stages before this one."""
        for pace in self._paces[workflow.reached : stage]:
            pace.coming -= 1
        workflow.reached = max(workflow.reached, stage)

    # -- out

    def _end(
        self,
        workflow: Workflow,
        finish: Finish,
        now: int,
        last: Work | None,
        *,
        value: Any = None,
        error: BaseException | None = None,
    ) -> None:
        """End the workflow, and drop its items that are still in stages."""
        workflow.finish, workflow.finished, workflow.last = finish, now, last
        workflow.value, workflow.error = value, error
        if finish is Finish.COMPUTED:
            self._pass_by(workflow, len(self._paces))
        self._reach(workflow, len(self._paces))
        self._answers.append(workflow)
        dropped = dict[int, list[Work]]()
        for work in workflow.open.values():
            dropped.setdefault(work.stage, []).append(work)
        for stage, works in dropped.items():
            self.places[stage].port.drop(works)
        self._settle(workflow)

    def _settle(self, workflow: Workflow) -> None:
        """Hand out the workflow's row, once none of its items is open."""
        if not workflow.open:
            self.open -= 1
            self._rows(workflow.row(self._names))

    def take_answers(self) -> list[Workflow]:
        """The workflows that have ended since the last call."""
        taken, self._answers = self._answers, []
        return taken


def _joined(
    workflow: Workflow, at: int, path: tuple[int, ...], value: Any
) -> list[tuple[int, tuple[int, ...], Any]]:
    """The whole list as one item, once its last element is there; until then, nothing."""
    key = at, path[:-1]
    workflow.lists[key][path[-1]] = value
    workflow.missing[key] -= 1
    if workflow.missing[key]:
        return []
    del workflow.missing[key]
    return [(at + 1, path[:-1], workflow.lists.pop(key))]


def _finish_of(error: Exception) -> Finish:
    return Finish.REFUSED if isinstance(error, RefusedError) else Finish.ERROR
