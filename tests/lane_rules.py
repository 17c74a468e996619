"""Rules for every step of a scheduler, whatever budgets and shares its lanes have."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from headway.core.batch import Batch, Row, Want
from headway.core.cost.features import batch_features
from headway.core.cost.step_cost import WHOLE
from headway.core.kv.block_table import demand
from headway.core.lane import Lane
from headway.core.planning.lane_limits import LaneLimits
from headway.core.planning.plan import Plan
from headway.core.policies.calls import Calls
from headway.core.policies.join import Dynamic, LengthClasses, Static
from headway.core.request import NEVER
from headway.core.sequences.sequence import RELEGATED, TIMED, UNTIMED, Sequence

NAMES = {TIMED: "timed", RELEGATED: "relegated", UNTIMED: "untimed"}


class Watched(Plan):
    """Checks each plan that is chosen while no step is in flight. Otherwise the rules may not hold:
    a sequence in flight is not preempted, and a scheduler may look ahead although one must be."""

    met = Counter[str]()  # rare paths

    def choose(self) -> None:
        if self.roster.leaving or any(s.in_flight for s in self.roster.running.values()):
            self.met["a step is decided ahead"] += 1
            super().choose()
            return
        self.before = {s: s.pending for s in self.roster.running.values()}
        self.spared = self.spare() if self._victims.across else []
        super().choose()
        self.lost = [s for s in self.before if not self._runs(s)]
        for each in self.lost:
            self.met[f"a {NAMES[each.tier]} sequence is preempted"] += 1
        self.met["one waits for a prefix"] += len(self._prefixes.waiting)
        self.check_it_does_not_idle()
        if self.allowance.split:
            assert sum(self.shares.values()) <= self.policies.step_tokens, "each token counts once"
        self.check_its_time()
        self.check_what_lanes_keep()
        if self._victims.across:
            self.check_lanes()

    def check_it_does_not_idle(self) -> None:
        """Some row is computed if any could be."""
        if self.shares:
            return
        assert not self.before, "who runs has tokens to compute"
        groups = isinstance(self.policies.join, Static | Dynamic | LengthClasses | Calls)
        assert groups or not self.view.waiting, "who waits could join"

    # -- its time

    def check_its_time(self) -> None:
        """A step takes longer than allowed only for rows that it must have, or for its minimum."""
        time = self.allowance.nanoseconds
        if time == NEVER:
            return
        decoding = [s for s in self.shares if self.before.get(s) == 1]
        optional = [] if self._in_turns else [s for s in decoding if s in self.deferred]
        must = [s for s in decoding if s not in optional]
        prompts = [s for s in self.shares if s not in decoding]
        if self.price(list(self.shares)) > time:
            self.met["a step takes longer than it may"] += 1
            least = max(self.allowance.least, int(not decoding))
            kept = sum([self.kept(line.lane, prompts) for line in self.view.lines])
            assert sum([self.shares[s] for s in prompts]) <= least + kept
        if [s for s in optional if self.tokens_of(s) > self.lane_of(s).step_tokens.least]:
            alone = not must and len(optional) == 1
            assert alone or self.price(decoding) <= time
        missed = [s for s in self.deferred if self._runs(s) and s not in self.shares]
        self.met["somebody misses a step"] += bool(missed)

    def price(self, chosen: list[Sequence]) -> int:
        """Predicted nanoseconds of a step with these sequences' rows, at the certainty `sure`."""
        rows = list[Row]()
        for s in chosen:
            end = s.scheduled + self.shares[s]
            want = Want.PROMPT if s.scores else Want.NOTHING
            if end == len(s.tokens):
                want |= Want.LAST
            rows.append(Row(s.number, s.scheduled, tuple(s.tokens[s.scheduled : end]), (), want))
        estimates = self.view.estimates
        features = batch_features(Batch(1, tuple(rows)), estimates.cost.gathering)
        sure = estimates.cost.residuals[estimates.cost.regime(features)].at(self.allowance.sure)
        return estimates.predict(features) * sure // WHOLE

    # -- what its lanes keep

    def lane_of(self, sequence: Sequence) -> Lane:
        return self.roster.lines[sequence.request.lane].lane

    def tokens_of(self, sequence: Sequence) -> int:
        """All tokens of the step that belong to the lane of this sequence."""
        return sum([n for s, n in self.shares.items() if s.request.lane == sequence.request.lane])

    def kept(self, lane: Lane, among: list[Sequence]) -> int:
        """The tokens of these sequences of the lane, at most the lane's least."""
        mine = sum([self.shares[s] for s in among if s.request.lane == lane.name])
        return min(mine, lane.step_tokens.least)

    def check_what_lanes_keep(self) -> None:
        """A lane with fewer tokens than its least can use no more, for lack of blocks, slots or
        tokens. A lane that has lost a sequence in this step has lost its tokens, too."""
        robbed = {s.request.lane for s in self.lost}
        for line in self.view.lines:
            lane, shares = line.lane, self.shares
            mine = {s: n for s, n in shares.items() if s.request.lane == lane.name}
            if sum(mine.values()) >= lane.step_tokens.least or lane.name in robbed:
                continue
            self.met["a lane cannot use what it keeps"] += line.running > len(mine)
            prompts = sum([n for s, n in mine.items() if s.pending > 1])
            for s in self.roster.running.values():
                if s.request.lane != lane.name or shares.get(s, 0) == s.pending:
                    continue
                if s not in self.before and (self.lost or line.running > lane.slots.least):
                    continue  # it joined with what others left, or in place of a lost one
                full = s.pending > 1 and prompts >= lane.chunk
                assert full or len(s.tokens) > s.room, "it has blocks for its tokens"
            if not self.view.waiting or line.running >= lane.slots.least or self.lost:
                continue
            self.met["a lane cannot use the slots that it keeps"] += 1
            for s in [*line.waiting, *line.relegated][: lane.slots.least - line.running]:
                assert s.awaits_leader or s in self._prefixes.waiting or not self.could_join(s)

    def could_join(self, sequence: Sequence) -> bool:
        """Whether a slot and blocks are free for the sequence, without taking any from others."""
        limits = LaneLimits(self.roster, self.pool)
        need, _ = demand(self.pool, sequence, whole=False)
        return (
            self.places > len(self._prefixes.waiting)
            and limits.may_join(sequence, whole=False)
            and need <= self.pool.num_free
        )

    # -- its lanes

    def would_suffice(self, joining: Sequence) -> bool:
        """Whether memory will suffice for the sequence later, beside the running ones in time."""
        memory = self.policies.memory
        if not memory.foresees(joining):
            return True
        in_time = [s for s in self.roster.running.values() if s.tier == TIMED]
        forecast = memory.forecast(self.view, in_time)
        _, used = demand(self.pool, joining, whole=False)
        found = len(used) * self.pool.block_size
        return forecast is None or not forecast.steps_to_room(joining, found)

    def check_lanes(self) -> None:
        """While a lane without a budget has more than its least, no sequence in time loses its
        blocks, except to others of a lane at its most, or waits for what the former lane has.
        """
        spare = self.spare()
        if {*spare} & {*self.spared}:  # else the lane has grown since
            lost = [s for s in self.lost if s.tier == TIMED]
            lanes = [self.roster.lines[s.request.lane].lane for s in lost]
            assert all(lane.blocks.most != NEVER for lane in lanes), "but to their own lane's most"
        if self.rest.is_full or not (self.kinds.prefill or not self.shares):
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
                assert not spare or free < need or self.places + len(spare) < 1

    def spare(self) -> list[Sequence]:
        """The sequences that lanes without a budget could lose, down to what the lanes keep."""
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
    """Check each step that is chosen in this context. Gives the counts of rare paths met."""
    plan = "headway.core.scheduler.Plan"
    with patch.object(Watched, "met", Counter()) as met, patch(plan, Watched):
        yield met
