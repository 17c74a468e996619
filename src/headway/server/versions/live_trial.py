"""A trial on the running server (LiveTrial): what it is told, and when it judges."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headway.core.lane import Budget, Lane
from headway.core.ledger import RequestRow, StepRow
from headway.rollout.plan import TrialPlan
from headway.rollout.trial import Outcome, Trial
from headway.server.answering.call import Call
from headway.server.answering.refusal import Refusal
from headway.server.intake.model import Model
from headway.server.intake.routing.failures import OF_THE_KEY
from headway.server.protocol.problem import Problem

REFUSED = 429
LOOK = 0.5  # seconds between two looks at the limits, at most
Notes = deque[Callable[[], object]]


class LiveTrial:
    """A trial on live engines. The event loop notes what happens, and decides which version is in
    force. A thread reads the notes and judges, so that no answer waits for statistics."""

    def __init__(
        self, number: int, control: int, plan: TrialPlan, lanes: Sequence[Lane], now: int
    ) -> None:
        """number: the candidate's; control: that of the version to compare it with. lanes: as the
        control has them. Their budgets judge both versions: a version that changes a budget would
        else be better or worse for that alone."""
        self.number, self.control = number, control
        self.promotes = False  # promote it at the end, if the expected figure is better
        self.expects: Mapping[str, Any] | None = None  # the version's expected gain
        self.failure = ""  # why the trial has no verdict; empty: it has one, or will
        self.has_run = asyncio.Event()  # set once no engine is told the candidate any more
        self.stopped_by, self.stopped_why = "", ""  # the operator who ended it; empty: nobody
        self._budgets = {lane.name: lane.budget for lane in lanes}
        self.trial = Trial(plan, self._budgets, now)
        self._notes = Notes()
        self._stopped: tuple[str, Outcome] | None = None

    @property
    def is_over(self) -> bool:
        return self.trial.verdict.outcome != Outcome.RUNNING

    async def run(
        self,
        engines: Sequence[Model],
        now: Callable[[], int],
        obey: Callable[[Model, int], object],
        fault: Callable[[], tuple[str, Outcome] | None],
    ) -> None:
        """Run the trial until its verdict. engines: one, or two that share the traffic. obey:
        called with an engine and the number of the version that it should run. fault: returns why
        and how the trial ends if an engine does not serve; None: all serve."""
        told = self.trial, self._notes, self._budgets
        watchers = [EngineWatcher(*told, place) for place, _ in enumerate(engines)]
        for engine, watcher in zip(engines, watchers, strict=True):
            engine.admission.watchers.append(watcher)
            engine.admission.listeners.append(watcher.rows)
        judging: asyncio.Future[None] | None = None
        try:
            while not self.is_over:
                at = now()
                for place, engine in enumerate(engines):
                    is_new = self.trial.candidate_in_force(at, place)
                    obey(engine, self.number if is_new else self.control)
                if judging is None or judging.done():
                    if judging:
                        judging.result()
                    if found := fault():
                        self.stop(*found)
                    oldest = [_oldest(engine) for engine in engines]
                    judging = asyncio.ensure_future(asyncio.to_thread(self._judge, at, oldest))
                await asyncio.sleep(min(LOOK, max(0.0, (self.trial.next_at(at) - now()) / 1e9)))
            if judging:
                await judging
        finally:
            for engine, watcher in zip(engines, watchers, strict=True):
                engine.admission.watchers.remove(watcher)
                engine.admission.listeners.remove(watcher.rows)
                obey(engine, self.control)

    def roll_back(self, by: str, why: str) -> None:
        """End the trial for an operator, also if its verdict is not stored yet."""
        self.stopped_by, self.stopped_why = by, why
        self.stop(why)

    def stop(self, why: str, outcome: Outcome = Outcome.STOPPED) -> None:
        """Have the judging thread end the trial."""
        self._stopped = why, outcome

    def _judge(self, at: int, oldest: Sequence[Mapping[str, int]]) -> None:
        while self._notes:
            self._notes.popleft()()
        if self._stopped:
            self.trial.stop(*self._stopped)
        self.trial.tick(at, *oldest)


def _oldest(engine: Model) -> dict[str, int]:
    """When the first request in each lane's line arrived."""
    return {name: each.oldest for name, each in engine.engine.load.lanes.items()}


class EngineWatcher:
    """A Watcher that notes what happens on one engine of a trial. budgets: by lane, those that
    judge its requests. place: the engine's index."""

    def __init__(
        self, trial: Trial, notes: Notes, budgets: Mapping[str, Budget], place: int
    ) -> None:
        self._trial, self._notes, self._budgets, self._place = trial, notes, budgets, place

    def ready(self) -> None:
        """An engine is ready."""

    def lost(self) -> None:
        """No other engine will come."""

    def entered(self, call: Call) -> None:
        for each in call.requests:
            given = each.id, each.lane, each.arrived, len(each.prompt), self._place
            self._notes.append(partial(self._trial.arrived, *given, own=call.routed.deadlines.own))

    def refused(self, call: Call, problem: Problem) -> None:
        told = call.arrived, len(call.choices), call.routed.deadlines.own_start
        self._refuse(problem, call.routed.lane, *told)

    def refused_early(self, refusal: Refusal) -> None:
        told = refusal.arrival.at, refusal.count, refusal.own_start
        self._refuse(refusal.problem, refusal.lane, *told)

    def _refuse(self, problem: Problem, lane: str, at: int, count: int, own: bool) -> None:
        """Note requests that were refused, unless their key was at a limit of its own."""
        if problem.status == REFUSED and problem.code not in OF_THE_KEY and lane:
            self._notes.extend([partial(self._trial.refused, lane, at, self._place, own)] * count)

    def left(self, call: Call, open: Sequence[str]) -> None:
        """Note nothing: the rows say how the requests ended."""

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        judged = [replace(row, budget=self._budgets[row.lane]) for row in requests]
        self._notes.extend([partial(self._trial.ended, row) for row in judged])
