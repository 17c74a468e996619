"""The steps that are being computed (InFlight), and whether another may be decided meanwhile."""

from typing import NamedTuple

from headway.core.batch import Batch, Want
from headway.core.cost.estimates import Estimates
from headway.core.cost.features import batch_features
from headway.core.lane import Lane
from headway.core.request import NEVER
from headway.core.sequences.roster import Roster
from headway.core.settings import Settings

FELT = 20  # a step that takes more than 1/FELT of a TTFT is felt
PAYS = 50  # waiting for a step pays if the device then idles for less than 1/PAYS of the step


class StepInFlight(NamedTuple):
    """A step that was scheduled and is not committed yet. Times in nanoseconds."""

    scheduled: int  # when it was decided
    tokens: int  # of its rows
    since: int  # when lines began to wait for it
    foreseen: int  # how long it is predicted to take; 0: not known
    gap: int  # host time in which the device would idle if the next step waited for this one


class InFlight:
    """The steps in flight by number, in order. With a depth of 1 there is at most one."""

    def __init__(self, settings: Settings, roster: Roster, estimates: Estimates) -> None:
        self.settings, self.roster, self.estimates = settings, roster, estimates
        self.ahead = settings.depth > 1  # a step may be decided while another is computed
        self._steps: dict[int, StepInFlight] = {}

    def __bool__(self) -> bool:
        return bool(self._steps)

    def retune(self, settings: Settings) -> None:
        """Take over other settings of the same depth."""
        self.settings = settings

    def add(self, batch: Batch, now: int, tokens: int, since: int, committed: int) -> None:
        """Add a step that is decided now. committed: when the last step was committed."""
        foreseen, gap, estimates = 0, 0, self.estimates
        if self.ahead and estimates.is_known:
            features, cost = batch_features(batch, estimates.cost.gathering), estimates.cost
            predict = estimates.behind_another if self._steps else estimates.predict
            foreseen = predict(features)
            gap = estimates.drifted(cost.on_host(features) + cost.behind(features))
        elif estimates.calls is not None:
            foreseen = estimates.calls.surely(tokens + batch.waste)
        self._steps[batch.step] = StepInFlight(now, tokens, since, foreseen, gap)
        if self.ahead:
            back, running = self.all_back(now, committed), self.roster.running
            for row in batch.rows:
                sequence = running[row.sequence]
                if row.want & Want.LAST and sequence.first_seen == NEVER:
                    sequence.first_seen = back

    def pop(self, number: int, committed: int) -> tuple[int, int, int, bool]:
        """Remove a step that is back. committed: when the step before it was committed. Returns
        when it began, its tokens, when lines began to wait for it (no time is before `committed`),
        and whether it was decided while the step before it was computed."""
        step = self._steps.pop(number)
        began, since = max(step.scheduled, committed), max(step.since, committed)
        return began, step.tokens, since, began > step.scheduled

    def all_back(self, now: int, committed: int) -> int:
        """When a step that is decided now can begin. committed: when the last one was committed."""
        for step in self._steps.values():
            committed = max(step.scheduled, committed) + step.foreseen
        return max(now, committed)

    @property
    def finishing(self) -> int:
        """How many running sequences have nothing left to compute once these steps are back. The
        next step has no rows of them, so their slots are free. 0 if no sequence waits for one."""
        running = self.roster.running.values() if self._steps and self.roster.waiting else ()
        return sum([not (s.pending or s.reads) for s in running])

    @property
    def may_look_ahead(self) -> bool:
        """Whether another step can be decided before these are back.

        Not if one is so long that a lane's TTFT would feel it: a request that arrives meanwhile
        could join the next step. Not while a row needs its token first. Not if a sequence may have
        to be preempted, for lack of blocks (of the pool or of its lane) or for an earlier tier: one
        in flight cannot be.
        """
        roster, running = self.roster, self.roster.running.values()
        if self._is_long:
            return False
        if roster.pool.num_free < len(running) or any(s.reads and not s.pending for s in running):
            return False
        if roster.limited_lanes and any(map(self._lacks_blocks, roster.limited_lanes.values())):
            return False
        if not self.settings.policies.goes_by_tier or not roster.waiting:
            return True
        lines = roster.lines.values()
        waiting = [part for line in lines for part in (line.waiting, line.relegated) if part]
        earliest = min([part[0].tier for part in waiting])
        may_lose = {line.lane.name for line in lines if line.running > line.lane.slots.least}
        return not any(s.tier > earliest and s.request.lane in may_lose for s in running)

    def _lacks_blocks(self, lane: Lane) -> bool:
        """Whether the next step needs more blocks for the lane's rows than the lane may have. One
        that runs alone may always grow (LaneLimits.may_grow)."""
        held = self.roster.pool.blocks_of_lane[lane.name]
        left = lane.blocks.most - held
        if left >= self.roster.lines[lane.name].running:
            return False
        own = [s for s in self.roster.running.values() if s.request.lane == lane.name]
        growing = [s for s in own if s.pending and s.scheduled >= s.room]
        return len(growing) > max(0, left) and held > len(growing[0].blocks)

    @property
    def _is_long(self) -> bool:
        """Whether the next step should wait for one in flight: this one takes a good part of a
        lane's TTFT, and the device would idle only briefly."""
        ttft = min([line.lane.budget.ttft for line in self.roster.lines.values()])
        return any(
            step.foreseen > ttft // FELT and step.gap < step.foreseen // PAYS
            for step in self._steps.values()
        )
