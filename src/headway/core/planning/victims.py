"""Which sequences may be preempted in this step, and for which others (Victims)."""

from collections import Counter
from collections.abc import Iterator

from headway.core.kv.block_table import demand
from headway.core.kv.blocks import BlockPool
from headway.core.lane import Line
from headway.core.planning.lane_limits import FAR
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.sequences.roster import Roster
from headway.core.sequences.sequence import RELEGATED, TIMED, UNTIMED, Sequence
from headway.core.view import View


class Victims:
    """The running sequences in the order in which they lose their blocks, for one step.

    A sequence in flight is never taken. By default the oldest is not taken either: so it ends, and
    in time all do. By default, too, none joins in a step that preempts: a victim could join again
    with the blocks that it has just lost.

    `across`: a sequence takes from later tiers first, down to the least that their lanes keep.
    In its own tier, all but the oldest may be taken. There, too, lanes keep their least: if no lane
    has more, the sequence's own gives way. Only the oldest of the first tier may take what other
    lanes keep, so that it ends. Others may join in a step that preempts, but not those of a
    victim's lane, nor those of a later tier than a victim's.
    """

    def __init__(self, policies: Policies, roster: Roster, pool: BlockPool, view: View) -> None:
        self.policy, self.roster, self.pool, self.view = policies.preempt, roster, pool, view
        self.across: bool = getattr(self.policy, "across", False)
        self._patience: int = getattr(policies.order, "patience", NEVER)
        self._turn: int = getattr(policies.order, "turn", 1)
        self._first_late: int | None = None  # number of the oldest running relegated, once needed
        self._left: list[Sequence] | None = None  # made only if a step lacks blocks or slots
        self._is_whole = False  # the first tier is in `_left`, too
        self._robbed: set[str] = set()  # lanes that have lost a sequence in this step
        self._first = UNTIMED  # the earliest tier that has
        self._kept_out = 0  # waiting sequences that may not join because of that
        self._oldest: dict[int, int] = {}  # number, by tier
        self._behind: dict[int, int] = {}  # blocks that later tiers have to give, by tier
        self._bare = UNTIMED  # no victims for waiting sequences of this tier or a later one

    @property
    def give_slots(self) -> bool:
        """Whether a waiting sequence may take the slot of a running one of a later tier."""
        if not self.across or not self.view.waiting:
            return False
        parts = [part for line in self.view.lines for part in (line.waiting, line.relegated)]
        earliest = min([part[0].tier for part in parts if part])
        later = [each for each in self.roster.running.values() if each.tier > earliest]
        return any(map(self._has_to_give, later))

    @property
    def are_none(self) -> bool:
        """Whether it is known already that there are no victims for any waiting sequence."""
        return self._bare == TIMED or not self.across

    def may_give_to(self, needy: Sequence) -> bool:
        """Whether there may be victims for a waiting sequence: none were looked for in vain yet."""
        return self.across and needy.tier < self._bare

    def taken(self, victim: Sequence) -> None:
        """Note that the victim is preempted now."""
        self._robbed.add(victim.request.lane)
        self._first = min(self._first, victim.tier)
        self._behind.clear()

    def would_spare(self, waits: Sequence) -> bool:
        """Whether a waiting sequence has its turn to join, and those in time would spare it."""
        return self.view.since_oldest[0] >= self._turn - 1 and self._spares(waits)

    def _spares(self, sequence: Sequence) -> bool:
        """Whether sequences in time leave this one its slot and blocks, or would if it ran. They
        spare a relegated one that is older than the order's patience, if no older relegated one
        runs. So the relegated end, too, one after another."""
        is_old = sequence.request.arrived + self._patience <= self.view.now
        if sequence.tier != RELEGATED or not is_old:
            return False
        if self._first_late is None:  # looked up once: many waiting sequences are asked about
            running = self.roster.running.values()
            late = [each.number for each in running if each.tier == RELEGATED]
            self._first_late = min(late, default=NEVER)
        return sequence.number <= self._first_late

    def may_join(self, sequence: Sequence) -> bool:
        """Whether a waiting sequence may join in spite of the step's preemptions."""
        if not self._robbed:
            return True
        in_lane = sequence.request.lane in self._robbed
        may_join = self.across and not in_lane and sequence.tier <= self._first
        self._kept_out += not may_join
        return may_join

    @property
    def let_others_try(self) -> bool:
        """Whether others may be tried after one that may not join because of the preemptions. As
        with misfits, a step looks no further than FAR."""
        return self.across and self._kept_out < FAR

    def next_for(self, needy: Sequence) -> Sequence | None:
        """The next victim for a running sequence; None: there is none."""
        left = self._remaining()
        found = next((each for each in left if self._may_be_taken(each, needy)), None)
        if not found:
            found = next((each for each in left if self._may_be_given_up(each, needy)), None)
        if not found and self._must_end(needy):
            found = next((each for each in left if each is not needy), None)
        if found:
            left.remove(found)
        return found

    def next_of_lane(self, needy: Sequence) -> Sequence | None:
        """The next victim of the sequence's own lane, perhaps itself; None: there is none. The
        lane's oldest is never taken, so that it ends."""
        left, lane = self._remaining(), needy.request.lane
        running = self.roster.running.values()
        oldest = min([each.number for each in running if each.request.lane == lane])
        for place, victim in enumerate(left):
            if victim.request.lane == lane and victim.number != oldest:
                return left.pop(place)
        return None

    def behind(self, needy: Sequence, slots: int, *, whole: bool) -> list[Sequence]:
        """The victims of later tiers for a waiting sequence: the first that leave so many slots and
        the blocks that it needs, without those that the others make unnecessary. Empty if all of
        them are not enough."""
        if not self.may_give_to(needy):
            return []
        if not any(each.tier > needy.tier for each in self.roster.running.values()):
            self._bare = needy.tier
            return []
        need, shared = demand(self.pool, needy, whole=whole)
        need -= self.pool.num_free
        found: list[Sequence] = []
        tables: list[list[int]] = []
        freed = 0
        for victim in self._later_than(needy.tier):
            if len(found) >= slots and freed >= need:
                break
            found.append(victim)
            tables.append(victim.blocks)
            freed = self.pool.freed_by(tables, shared)
        if not found:
            self._bare = needy.tier
        if len(found) < slots or freed < need:
            return []
        for each in reversed(found[:-1]):  # without the last, the others were not enough
            others = [other for other in found if other is not each]
            tables = [other.blocks for other in others]
            if len(others) >= slots and self.pool.freed_by(tables, shared) >= need:
                found = others
        self._left = [each for each in self._remaining(later=True) if each not in found]
        return found

    def blocks_behind(self, tier: int) -> int:
        """How many blocks later tiers have to give to waiting sequences of this tier."""
        if not self.across or tier >= self._bare:
            return 0
        if tier not in self._behind:
            tables = [each.blocks for each in self._later_than(tier)]
            self._behind[tier] = self.pool.freed_by(tables, ())
        return self._behind[tier]

    def _later_than(self, tier: int) -> Iterator[Sequence]:
        """The victims of later tiers, down to the least that their lanes keep."""
        gone, held = Counter[str](), Counter[str]()
        for victim in self._remaining(later=True):
            lane = victim.request.lane
            if victim.tier <= tier or self._spares(victim):
                continue
            if self._has_more(self.roster.lines[lane], gone[lane], held[lane]):
                gone[lane] += 1
                held[lane] += len(victim.blocks)
                yield victim

    def _remaining(self, *, later: bool = False) -> list[Sequence]:
        """The victims that are left. later: the first tier, mostly a large one, may be missing."""
        running, across = self.roster.running.values(), self.across
        if self._left is None:
            self.view = self.view._replace(shared=frozenset(self.view.shared))  # as it is now
            for each in running:
                tier = self._tier(each)
                self._oldest[tier] = min(self._oldest.get(tier, each.number), each.number)
            self._left = self._ranked([s for s in running if s.tier != TIMED]) if across else []
        if not later and not self._is_whole:
            self._is_whole = True
            self._left += self._ranked([s for s in running if not across or s.tier == TIMED])
        return self._left

    def _ranked(self, running: list[Sequence]) -> list[Sequence]:
        """The sequences that may be taken at all, the first victim first."""
        spared = () if self.across else self._oldest.values()
        victims = self.policy.victims(self.view._replace(running=running))
        return [v for v in victims if not v.in_flight and v.number not in spared]

    def _may_be_taken(self, victim: Sequence, needy: Sequence) -> bool:
        """Whether the victim's lane has more than its least, and the victim gives way."""
        tier, own = self._tier(victim), self._tier(needy)
        if tier != own:
            return tier > own and self._has_to_give(victim)
        return victim.number != self._oldest[own] and self._has_spare(victim)

    def _may_be_given_up(self, victim: Sequence, needy: Sequence) -> bool:
        """Whether the victim is of the sequence's own lane and tier, and not the tier's oldest."""
        own = self._tier(needy)
        is_beside = victim.request.lane == needy.request.lane and self._tier(victim) == own
        return is_beside and victim.number != self._oldest[own]

    def _tier(self, sequence: Sequence) -> int:
        """Its tier, or the first for all if tiers do not matter."""
        return sequence.tier if self.across else TIMED

    def _has_spare(self, victim: Sequence) -> bool:
        """Whether the victim's lane has more than its least."""
        return self._has_more(self.roster.lines[victim.request.lane], 0, 0)

    def _has_to_give(self, victim: Sequence) -> bool:
        """Whether an earlier tier may take the victim's slot and blocks."""
        return not self._spares(victim) and self._has_spare(victim)

    def _must_end(self, needy: Sequence) -> bool:
        """Whether the sequence is the oldest of the first tier, and other lanes keep all that
        run beside it in that tier: then it may take what they keep."""
        tier, running = self._tier(needy), self.roster.running.values()
        is_oldest = needy.number == self._oldest[tier]
        others = [each for each in running if each is not needy and self._tier(each) <= tier]
        lane = needy.request.lane
        kept = [e for e in others if e.request.lane != lane and not self._has_spare(e)]
        return is_oldest and kept == others and all(self._tier(each) == tier for each in kept)

    def _has_more(self, line: Line, gone: int, blocks: int) -> bool:
        """Whether a lane has more than its least, without `gone` sequences and these blocks."""
        lane = line.lane
        held = self.pool.blocks_of_lane[lane.name] - blocks
        return line.running - gone > lane.slots.least and held > lane.blocks.least
