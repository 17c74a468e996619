"""What holds of every step of a scheduler, whatever its lanes have of budgets and shares."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from headway.core.batch import Batch, Row, Want
from headway.core.block_table import demand
from headway.core.cost.features import batch_features
from headway.core.cost.step_cost import WHOLE
from headway.core.planning.lane_limits import LaneLimits
from headway.core.planning.plan import Plan
from headway.core.policies.join import Dynamic, LengthClasses, Static
from headway.core.request import NEVER
from headway.core.sequence import RELEGATED, TIMED, UNTIMED, Sequence

NAMES = {TIMED: "timed", RELEGATED: "relegated", UNTIMED: "untimed"}


class Watched(Plan):
    """Checks what it has chosen. For one step in flight at a time."""

    met = Counter[str]()  # rare paths

    def choose(self) -> None:
        self.before = {s: s.pending for s in self.roster.running.values()}
        self.spared = self.spare() if self._victims.across else []
        super().choose()
        self.lost = [s for s in self.before if not self._runs(s)]
        for each in self.lost:
            self.met[f"a {NAMES[each.tier]} sequence is preempted"] += 1
        self.met["one waits for a prefix"] += len(self._prefixes.waiting)
        self.check_it_does_not_idle()
        self.check_its_time()
        if self._victims.across:
            self.check_lanes()

    def check_it_does_not_idle(self) -> None:
        """Some row is computed if any could be."""
        if self.shares:
            return
        assert not self.before, "who runs has tokens to compute"
        groups = isinstance(self.policies.join, Static | Dynamic | LengthClasses)
        assert groups or not self.view.waiting, "who waits could join"

    # -- its time

    def check_its_time(self) -> None:
        """A step takes longer than it may only for rows that it must have, or for its minimum."""
        time = self._allow.nanoseconds
        if time == NEVER:
            return
        decoding = [s for s in self.shares if self.before.get(s) == 1]
        optional = [] if self._in_turns else [s for s in decoding if s in self._deferred]
        must = [s for s in decoding if s not in optional]
        prompts = [s for s in self.shares if s not in decoding]
        if self.price(list(self.shares)) > time:
            self.met["a step takes longer than it may"] += 1
            least = max(self._allow.least, int(not decoding))
            assert sum([self.shares[s] for s in prompts]) <= least
        if optional:
            alone = not must and len(optional) == 1
            assert alone or self.price(decoding) <= time
        missed = [s for s in self._deferred if self._runs(s) and s not in self.shares]
        self.met["somebody misses a step"] += bool(missed)

    def price(self, chosen: list[Sequence]) -> int:
        """Nanoseconds of a step of these rows, as they will be."""
        rows = list[Row]()
        for s in chosen:
            end = s.scheduled + self.shares[s]
            want = Want.PROMPT if s.scores else Want.NOTHING
            if end == len(s.tokens):
                want |= Want.LAST
            rows.append(Row(s.number, s.scheduled, tuple(s.tokens[s.scheduled : end]), (), want))
        estimates = self.view.estimates
        features = batch_features(Batch(1, tuple(rows)), estimates.cost.gathering)
        sure = estimates.cost.residuals[estimates.cost.regime(features)].at(self._allow.sure)
        return estimates.predict(features) * sure // WHOLE

    # -- its lanes

    def would_suffice(self, joining) -> bool:
        """Whether memory suffices for it later on too, beside those in time who run."""
        in_time = [s for s in self.roster.running.values() if s.tier == TIMED]
        return self.policies.memory.suffices(self.view, in_time, joining)

    def check_lanes(self) -> None:
        """While a lane without a budget has more than its least, nobody who is in time loses its
        blocks, unless to others of a lane that may have no more, or waits for what that lane has.
        """
        spare = self.spare()
        if {*spare} & {*self.spared}:  # else the lane has grown since
            lost = [s for s in self.lost if s.tier == TIMED]
            lanes = [self.roster.lines[s.request.lane].lane for s in lost]
            assert all(lane.blocks.most != NEVER for lane in lanes), "but to their own lane's most"
        if self._is_full or not (self.kinds.prefill or not self.shares):
            return
        robbed = {s.request.lane for s in self.lost}
        limits, for_prefixes = LaneLimits(self.roster, self.pool), self._prefixes.waiting
        for each in for_prefixes:
            limits.keep_slot(each)
        for line in self.view.lines:
            for each in line.waiting:
                if each.tier != TIMED or each.awaits_leader or line.lane.name in robbed:
                    continue
                if each in for_prefixes:
                    continue
                if not limits.may_join(each, whole=False) or not self.would_suffice(each):
                    continue
                self.met["one in time waits"] += 1
                need, shared = demand(self.pool, each, whole=False)
                free = self.pool.num_free + self.pool.freed_by([s.blocks for s in spare], shared)
                assert not spare or free < need or self._places + len(spare) < 1

    def spare(self) -> list[Sequence]:
        """Who could be taken of the lanes without a budget, down to what they keep."""
        found, gone, held = list[Sequence](), Counter[str](), Counter[str]()
        for each in self.policies.preempt.victims(self.view):
            lane = self.roster.lines[each.request.lane].lane
            runs = self.roster.lines[lane.name].running - gone[lane.name]
            blocks = self.pool.blocks_of_lane[lane.name] - held[lane.name]
            if each.tier == UNTIMED and runs > lane.slots.least and blocks > lane.blocks.least:
                found.append(each)
                gone[lane.name] += 1
                held[lane.name] += len(each.blocks)
        return found


@contextmanager
def watched() -> Iterator[Counter[str]]:
    """Check each step that is chosen in this context. The rare paths that were met."""
    plan = "headway.core.scheduler.Plan"
    with patch.object(Watched, "met", Counter()) as met, patch(plan, Watched):
        yield met
