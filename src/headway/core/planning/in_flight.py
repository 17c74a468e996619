"""The steps that are being computed (InFlight), and whether another may be decided meanwhile."""

from typing import NamedTuple

from headway.core.batch import Batch, Want
from headway.core.cost.estimates import Estimates
from headway.core.cost.features import batch_features
from headway.core.request import NEVER
from headway.core.roster import Roster
from headway.core.settings import Settings

FELT = 20  # of a TTFT, a step that takes more than one part of so many is felt
PAYS = 50  # to wait for a step costs less than one part of so many of the device's time


class StepInFlight(NamedTuple):
    """One that was scheduled and is not committed yet. Times in nanoseconds."""

    scheduled: int  # when it was decided
    tokens: int  # of its rows
    since: int  # lines have waited for it since then
    foreseen: int  # how long it is predicted to take; 0: not known
    gap: int  # of the host, in which the device would rest if the next one waited for it


class InFlight:
    """The steps by number, in their order. With a depth of 1 there is one at most."""

    def __init__(self, settings: Settings, roster: Roster, estimates: Estimates) -> None:
        self.settings, self.roster, self.estimates = settings, roster, estimates
        self.ahead = settings.depth > 1  # a step may be decided while another is computed
        self._steps: dict[int, StepInFlight] = {}

    def __bool__(self) -> bool:
        return bool(self._steps)

    def retune(self, settings: Settings) -> None:
        """Other settings are in force, of the same depth."""
        self.settings = settings

    def add(self, batch: Batch, now: int, tokens: int, since: int, committed: int) -> None:
        """It was decided now. committed: when the last one was."""
        foreseen, gap, estimates = 0, 0, self.estimates
        if self.ahead and estimates.is_known:
            features, cost = batch_features(batch, estimates.cost.gathering), estimates.cost
            predict = estimates.behind_another if self._steps else estimates.predict
            foreseen = predict(features)
            gap = estimates.drifted(cost.on_host(features) + cost.behind(features))
        elif self.ahead and estimates.calls is not None:
            foreseen = estimates.calls.surely(tokens)
        self._steps[batch.step] = StepInFlight(now, tokens, since, foreseen, gap)
        if self.ahead:
            back, running = self.all_back(now, committed), self.roster.running
            for row in batch.rows:
                sequence = running[row.sequence]
                if row.want & Want.LAST and sequence.first_seen == NEVER:
                    sequence.first_seen = back

    def pop(self, number: int, committed: int) -> tuple[int, int, int, bool]:
        """It is back. committed: when the one before it was. Returns when it began, its tokens, and
        since when lines have waited for it: nothing of that lies before `committed`. And whether it
        was decided while that one was computed."""
        step = self._steps.pop(number)
        began, since = max(step.scheduled, committed), max(step.since, committed)
        return began, step.tokens, since, began > step.scheduled

    def all_back(self, now: int, committed: int) -> int:
        """When a step can begin that is decided now. committed: when the last one was."""
        for step in self._steps.values():
            committed = max(step.scheduled, committed) + step.foreseen
        return max(now, committed)

    @property
    def finishing(self) -> int:
        """How many of the running have nothing left to compute once these steps are back. The next
        step has no rows of them, so that their slots are free for it. 0 if nobody waits for one."""
        running = self.roster.running.values() if self._steps and self.roster.waiting else ()
        return sum([not (s.pending or s.reads) for s in running])

    @property
    def may_look_ahead(self) -> bool:
        """Whether another step can be decided before these are back.

        Not if one is so long that a lane's TTFT would feel it: who arrives meanwhile could join the
        next step. Not while a row needs its token first. Nor if somebody may have to be preempted
        for want of blocks or for somebody of an earlier tier: nobody in flight can be.
        """
        roster, running = self.roster, self.roster.running.values()
        if self._is_long:
            return False
        if roster.pool.num_free < len(running) or any(s.reads and not s.pending for s in running):
            return False
        if not self.settings.policies.goes_by_tier or not roster.waiting:
            return True
        lines = roster.lines.values()
        waiting = [part for line in lines for part in (line.waiting, line.relegated) if part]
        earliest = min([part[0].tier for part in waiting])
        may_lose = {line.lane.name for line in lines if line.running > line.lane.slots.least}
        return not any(s.tier > earliest and s.request.lane in may_lose for s in running)

    @property
    def _is_long(self) -> bool:
        """Whether the next step had better wait for one of these: it takes a good part of a lane's
        TTFT, and little of it is the host's."""
        ttft = min([line.lane.budget.ttft for line in self.roster.lines.values()])
        return any(
            step.foreseen > ttft // FELT and step.gap < step.foreseen // PAYS
            for step in self._steps.values()
        )
