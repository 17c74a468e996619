"""What each lane may have of a step, of the slots and of the blocks, at most (LaneLimits)."""

from collections import Counter
from collections.abc import Mapping

from headway.core.blocks import BlockPool
from headway.core.lane import Lane
from headway.core.roster import Roster
from headway.core.sequence import Sequence


class LaneLimits:
    """Counts what the lanes get in one step. Lanes without limits cost nothing."""

    def __init__(self, roster: Roster, pool: BlockPool) -> None:
        self.roster, self.pool = roster, pool
        self._limited = roster.limited_lanes
        self._tokens, self._prompts, self._joined = Counter[str](), Counter[str](), Counter[str]()

    def count(self, shares: Mapping[Sequence, int]) -> None:
        """Those who decode have these tokens already."""
        if self._limited:
            for sequence, take in shares.items():
                self._tokens[sequence.request.lane] += take

    def within(self, sequence: Sequence, take: int) -> int:
        """How many of so many tokens its lane may still have of the step."""
        lane = self._limit_of(sequence)
        if lane is None:
            return take
        left = lane.step_tokens.most - self._tokens[lane.name]
        if sequence.pending > 1:
            left = min(left, lane.chunk - self._prompts[lane.name])
        return max(0, min(take, left))

    def give(self, sequence: Sequence, take: int) -> None:
        """It gets so many tokens."""
        if (lane := self._limit_of(sequence)) is not None:
            self._tokens[lane.name] += take
            self._prompts[lane.name] += take if sequence.pending > 1 else 0

    def may_join(self, sequence: Sequence) -> bool:
        """Whether its lane has slots and blocks left for it."""
        lane = self._limit_of(sequence)
        if lane is None:
            return True
        line = self.roster.lines[lane.name]
        blocks = self.pool.blocks_of_lane[lane.name] + self.pool.blocks_for(len(sequence.tokens))
        runs = line.running + self._joined[lane.name]
        # Each that runs may want a token of the same step.
        return runs < min(lane.slots.most, lane.step_tokens.most) and blocks <= lane.blocks.most

    def join(self, sequence: Sequence) -> None:
        """It joins; the roster counts it only at the end of the step."""
        self._joined[sequence.request.lane] += 1

    def _limit_of(self, sequence: Sequence) -> Lane | None:
        return self._limited.get(sequence.request.lane) if self._limited else None
