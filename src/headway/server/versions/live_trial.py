"""A trial on the running server (LiveTrial): what it is told, and when it judges."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from headway.core.ledger import RequestRow, StepRow
from headway.rollout.plan import TrialPlan
from headway.rollout.trial import Outcome, Trial
from headway.server.answering.call import Call
from headway.server.answering.refusal import Refusal
from headway.server.protocol.problem import Problem

REFUSED = 429
LOOK = 0.5  # seconds between two looks at the limits, at most


class LiveTrial:
    """A Watcher. What happens is noted on the event loop; a thread takes it in and judges, so that
    no answer waits for statistics. Which version is in force is decided on the loop."""

    def __init__(
        self, number: int, control: int, plan: TrialPlan, lanes: Sequence[str], now: int
    ) -> None:
        """number: of the candidate; control: of the version that it is compared with."""
        self.number, self.control = number, control
        self.promotes = False  # at its end, if the expected figure is better
        self.stopped_by = ""  # the operator who ended it
        self.trial = Trial(plan, lanes, now)
        self._told = deque[Callable[[], object]]()
        self._stopped: tuple[str, Outcome] | None = None

    @property
    def is_over(self) -> bool:
        return self.trial.verdict.outcome != Outcome.RUNNING

    async def run(
        self,
        now: Callable[[], int],
        oldest: Callable[[], Mapping[str, int]],
        obey: Callable[[int], object],
    ) -> None:
        """Until its verdict. obey: called with the number of the version that is to be in force."""
        judging: asyncio.Future[None] | None = None
        while not self.is_over:
            at = now()
            obey(self.number if self.trial.candidate_in_force(at) else self.control)
            if judging is None or judging.done():
                if judging:
                    judging.result()
                judging = asyncio.ensure_future(asyncio.to_thread(self._judge, at, dict(oldest())))
            await asyncio.sleep(min(LOOK, max(0.0, (self.trial.next_at(at) - now()) / 1e9)))
        if judging:
            await judging
        obey(self.control)

    def stop(self, why: str, outcome: Outcome = Outcome.STOPPED) -> None:
        """End it; its thread obeys."""
        self._stopped = why, outcome

    def _judge(self, at: int, oldest: Mapping[str, int]) -> None:
        while self._told:
            self._told.popleft()()
        if self._stopped:
            self.trial.stop(*self._stopped)
        self.trial.tick(at, oldest)

    # -- a Watcher

    def ready(self) -> None:
        """An engine is ready."""

    def entered(self, call: Call) -> None:
        for each in call.requests:
            given = each.id, each.lane, each.arrived, len(each.prompt)
            self._told.append(partial(self.trial.arrived, *given))

    def refused(self, call: Call, problem: Problem) -> None:
        if problem.status == REFUSED:
            self._refuse(call.routed.lane, call.arrived, len(call.choices))

    def refused_early(self, refusal: Refusal) -> None:
        if refusal.problem.status == REFUSED and refusal.lane:
            self._refuse(refusal.lane, refusal.arrival.at, refusal.count)

    def _refuse(self, lane: str, at: int, count: int) -> None:
        self._told.extend([partial(self.trial.refused, lane, at)] * count)

    def left(self, call: Call, open: Sequence[str]) -> None:
        """The rows say how they ended."""

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        self._told.extend([partial(self.trial.ended, row) for row in requests])
