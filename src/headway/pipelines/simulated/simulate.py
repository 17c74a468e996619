"""A pipeline in virtual time (simulate_pipeline), with a live one's course and schedulers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from itertools import count
from random import Random
from typing import Any

from headway.core.commands import Add, Cancel
from headway.core.request import NEVER, Request
from headway.core.scheduler import Scheduler
from headway.errors import EngineError, SettingError
from headway.pipelines.course import Course, Place
from headway.pipelines.graph import Program, Split
from headway.pipelines.pace import Pace
from headway.pipelines.row import WHOLE, WorkflowRow
from headway.pipelines.simulated.llm_stage import SimulatedLLM
from headway.pipelines.simulated.stage import SimulatedStage
from headway.pipelines.split import Learned, Splitting
from headway.pipelines.workflow import Outcome, Work, Workflow
from headway.sim.simulate import uncollected
from headway.sim.together import Member, Together, Told

LEARNED = Learned()


@dataclass(slots=True)
class Simulated:
    """What became of the workflows that were offered."""

    rows: list[WorkflowRow] = field(default_factory=list)  # in the order of their ends
    refused: list[int] = field(default_factory=list)  # arrivals of the refused workflows
    paces: tuple[Pace, ...] = ()  # of the stages, at the end


def simulate_pipeline(
    graph: Any,
    arrivals: Iterable[int],
    *,
    deadline: int = NEVER,
    split: Splitting = LEARNED,
    seed: int | None = 0,
    cancels: Sequence[tuple[int, str]] = (),
) -> Simulated:
    """Run a graph of SimulatedStages and SimulatedLLMs over workflows.

    arrivals: nanoseconds, ascending. deadline: nanoseconds for each workflow. seed: of the calls'
    residuals and of what items draw; None: each call takes its price. cancels: the time,
    ascending, and the number of the workflow, from "1". Raises SettingError.
    """
    program = Program.of(graph)
    if isinstance(program.operations[0], Split):
        raise SettingError("a simulated pipeline begins with a stage, not with each()")
    run = _Run(program, split, seed)
    run.go(arrivals, deadline, cancels)
    return run.found


class _Run:
    def __init__(self, program: Program, split: Splitting, seed: int | None) -> None:
        self.found, self.now = Simulated(), 0
        self.ports = [_Port(self, program, at, seed) for at in range(len(program.stages))]
        split.check(len(self.ports))
        places = [
            Place(port.stage.name, port, port.pace(program.stages[at].max_waiting))
            for at, port in enumerate(self.ports)
        ]
        self.course = Course(program, places, split, self.found.rows.append)
        self.found.paces = tuple([place.pace for place in places])

    def go(
        self, arrivals: Iterable[int], deadline: int, cancels: Sequence[tuple[int, str]]
    ) -> None:
        numbers, begun = count(1), dict[str, Workflow]()
        timed = list(merge([(at, "") for at in arrivals], cancels))  # at one time, arrivals first
        happens = iter(timed)

        def arrive(now: int) -> None:
            self.now, (_, cancelled) = now, next(happens)
            if cancelled in begun:
                self.course.cancel(begun[cancelled], now)
            elif not cancelled:
                self._begin(now, begun, next(numbers), deadline)
            self.course.take_answers()

        with uncollected():
            Together([port.member for port in self.ports]).run([at for at, _ in timed], arrive)
        assert not self.course.open, "a workflow was lost"

    def _begin(self, now: int, begun: dict[str, Workflow], number: int, deadline: int) -> None:
        if self.course.refuse(now):
            self.found.refused.append(now)
            return
        end_by = NEVER if deadline == NEVER else now + deadline
        workflow = begun[str(number)] = Workflow(str(number), now, end_by)
        self.course.begin(workflow, None, now)


class _Port:
    """A stage in virtual time: an engine with the scheduler that a live Batcher has."""

    def __init__(self, run: _Run, program: Program, at: int, seed: int | None) -> None:
        stage = program.stages[at].work
        if not isinstance(stage, SimulatedStage | SimulatedLLM):
            raise SettingError(
                f"a {type(stage).__name__} has no price: use a SimulatedStage or a SimulatedLLM"
            )
        self.stage, self._run, self._seed = stage, run, seed
        settings = stage.for_engine()
        self._size = settings.policies.slots
        self._lists = program.lists_after(at)
        self._works = dict[str, Work]()  # by id of the request
        self._numbers = count(1)
        noise = None if seed is None else 1_000 * seed + at  # each stage has residuals of its own
        self.member = Member(
            Scheduler(settings), lambda clock: stage.executor(clock, noise), self._hear
        )
        self._drain = 0.0

    def pace(self, max_waiting: int) -> Pace:
        return Pace(self._size, max_waiting, calls=self.stage.calls)

    def offer(self, works: Sequence[Work]) -> None:
        now = self._run.now
        adds = list[Add]()
        for work in works:
            number = next(self._numbers)
            work.ticket = str(number)
            self._works[work.ticket] = work
            prompt, answer = self.stage.ask(number, partial(self._draw, "tokens", work))
            request = Request(
                work.ticket,
                prompt,
                answer,
                now,
                end_by=work.workflow.end_by,
                due=work.due,
                planned=work.planned,
            )
            adds.append(Add(request))
        self.member.inbox.put(now, adds)

    def drop(self, works: Sequence[Work]) -> None:
        self.member.inbox.put(self._run.now, [Cancel(work.ticket) for work in works])

    def drain(self) -> float:
        return self._drain

    def _hear(self, told: Told) -> None:
        run, rows = self._run, {row.id: row for row in told.rows}
        run.now, self._drain = told.at, told.drains["default"]
        step = told.steps[-1] if told.steps else None
        for event in told.events:
            if not event.finish:
                continue
            work, row = self._works.pop(event.id), rows[event.id]
            ended = event.finish in WHOLE
            error = None if ended else EngineError(event.error or event.finish)
            value = self._value(work) if ended else None
            call = step if ended and self.stage.calls else None
            outcome = Outcome(value, error, event.finish, row, call)
            run.course.ended(work, outcome, told.at)
        run.course.take_answers()

    def _draw(self, what: str, work: Work) -> Random:
        """A generator that is the same for an item, whatever else runs."""
        at = f"{self._seed} {self.stage.name} {work.workflow.id} {work.path}"
        return Random(f"{at} {what}".rstrip())

    def _value(self, work: Work) -> Any:
        if not self._lists:
            return None
        value: Any = None
        draw = self._draw("", work)
        for _ in range(self._lists):
            value = [value] * draw.choice(self.stage.widths)
        return value
