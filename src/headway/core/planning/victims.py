"""Who may be preempted in this step, and for whom (Victims)."""

from headway.core.blocks import BlockPool
from headway.core.lane import Line
from headway.core.policies.preempt import Preempt
from headway.core.roster import Roster
from headway.core.sequence import Sequence
from headway.core.view import View


class Victims:
    """The running in the order in which they lose their blocks, for one step.

    Nobody in flight is taken. By default the oldest is not taken either: so it ends, and in time
    all do. Then nobody joins in a step that preempts: a victim could join again with the blocks
    that it has just lost.

    `across`: a sequence takes from later tiers first, down to the least that their lanes keep.
    In its own tier everyone but the oldest may be taken, and the oldest of the first tier may take
    from all, so that it ends whatever the lanes keep. Others may join in a step that preempts, but
    not those of a victim's lane.
    """

    def __init__(self, policy: Preempt, roster: Roster, pool: BlockPool, view: View) -> None:
        self.policy, self.roster, self.pool, self.view = policy, roster, pool, view
        self.across: bool = getattr(policy, "across", False)
        self._left: list[Sequence] | None = None  # made only if a step lacks blocks or slots
        self._robbed = set[str]()  # lanes that have lost somebody in this step
        self._oldest = dict[int, int]()  # number, by tier

    def taken(self, victim: Sequence) -> None:
        """It is preempted now."""
        self._robbed.add(victim.request.lane)

    def may_join(self, sequence: Sequence) -> bool:
        """Whether a waiting sequence may join in spite of those preempted in this step."""
        if not self._robbed:
            return True
        return self.across and sequence.request.lane not in self._robbed

    def next_for(self, needy: Sequence, *, behind: bool = False) -> Sequence | None:
        """The next one that may be taken for the needy; behind: of later tiers only. Once each."""
        left = self._remaining()
        for place, victim in enumerate(left):
            if self._may_be_taken(victim, needy, behind):
                return left.pop(place)
        return None

    def blocks_behind(self, needy: Sequence) -> int:
        """Free blocks, and those that next_for(needy, behind=True) could bring, at most."""
        victims = [v for v in self._remaining() if self._may_be_taken(v, needy, True)]
        return self.pool.num_free + sum([len(victim.blocks) for victim in victims])

    def _remaining(self) -> list[Sequence]:
        if self._left is None:
            victims, oldest = list(self.policy.victims(self.view)), self._oldest
            for each in victims:
                tier = each.tier if self.across else 0
                oldest[tier] = min(oldest.get(tier, each.number), each.number)
            spared = () if self.across else oldest.values()
            self._left = [v for v in victims if not v.in_flight and v.number not in spared]
        return self._left

    def _may_be_taken(self, victim: Sequence, needy: Sequence, behind: bool) -> bool:
        if not self.across:
            return True
        if victim.tier < needy.tier or (behind and victim.tier == needy.tier):
            return False
        first = min(self._oldest)
        if victim.tier == needy.tier:
            return victim.number != self._oldest[victim.tier]
        if needy.number == self._oldest[first]:  # it runs, and must end
            return True
        return self._holds_more_than_its_least(self.roster.lines[victim.request.lane])

    def _holds_more_than_its_least(self, line: Line) -> bool:
        lane = line.lane
        held = self.pool.blocks_of_lane[lane.name]
        return line.running > lane.slots.least and held > lane.blocks.least
