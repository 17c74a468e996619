"""The most that each lane may have of a step, of the slots and of the blocks (LaneLimits)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from headway.core.kv.blocks import BlockPool
from headway.core.lane import Lane, Line
from headway.core.sequences.roster import Roster
from headway.core.sequences.sequence import Sequence

PATIENCE = 64  # a sequence that was overtaken this often is not overtaken again
FAR = 512  # after so many that were passed over, a step looks no further


class LaneLimits:
    """Counts what the lanes get in one step. Lanes without limits cost nothing."""

    def __init__(self, roster: Roster, pool: BlockPool) -> None:
        self.roster, self.pool = roster, pool
        self._limited = roster.limited_lanes
        # Made in every step: a Counter takes ten times as long to make.
        self._tokens: dict[str, int] = defaultdict(int)
        self._prompts: dict[str, int] = defaultdict(int)
        self._joined: dict[str, int] = defaultdict(int)
        # By lane: sequences that lack blocks of it.
        self._passed: dict[str, list[Sequence]] = defaultdict(list)
        self._closed: set[str] = set()  # lanes of which no other sequence joins in this step
        self.holding: set[str] = set()  # lanes whose limits have kept a sequence from joining

    @property
    def any(self) -> bool:
        """Whether any lane has a limit."""
        return bool(self._limited)

    def count(self, shares: Mapping[Sequence, int]) -> None:
        """Count the tokens that the decoding sequences have already, the first of the step. What
        was given back before had not been counted."""
        if self._limited:
            self._tokens.clear()
            for sequence, take in shares.items():
                self._tokens[sequence.request.lane] += take

    def within(self, sequence: Sequence, take: int) -> int:
        """How many of `take` tokens the sequence's lane may still have of the step."""
        lane = self._limit_of(sequence)
        if lane is None:
            return take
        left = lane.step_tokens.most - self._tokens[lane.name]
        if sequence.pending > 1:
            left = min(left, lane.chunk - self._prompts[lane.name])
        return max(0, min(take, left))

    def lacks_slots(self, sequence: Sequence) -> bool:
        """Whether the sequence's lane runs fewer sequences than its least."""
        line = self.roster.lines[sequence.request.lane]
        return line.running + self._joined[line.lane.name] < line.lane.slots.least

    def lacking(self, lines: Iterable[Line]) -> dict[str, int]:
        """How many waiting sequences a lane keeps slots for, by lane; 1 if it only lacks blocks of
        its least. Lanes that lack nothing, or in which none waits, are not named."""
        found: dict[str, int] = {}
        for line in lines:
            lane = line.lane
            lacks = lane.slots.least - line.running - self._joined[lane.name]
            if lacks <= 0 < lane.blocks.least:
                lacks = int(self.pool.blocks_of_lane[lane.name] < lane.blocks.least)
            if lacks > 0 and len(line):
                found[lane.name] = min(lacks, len(line))
        return found

    def is_kept_for(self, sequence: Sequence) -> bool:
        """Whether the sequence's lane keeps a slot for it, or blocks for its tokens."""
        lane = self.roster.lines[sequence.request.lane].lane
        if self.lacks_slots(sequence):
            return True
        if not lane.blocks.least:
            return False
        need = self.pool.blocks_for(len(sequence.tokens))
        return self.pool.blocks_of_lane[lane.name] + need <= lane.blocks.least

    def give(self, sequence: Sequence, take: int) -> None:
        """Count the tokens that the sequence gets."""
        if (lane := self._limit_of(sequence)) is not None:
            self._tokens[lane.name] += take
            self._prompts[lane.name] += take if sequence.pending > 1 else 0

    def open(self, lines: tuple[Line, ...]) -> tuple[Line, ...]:
        """The lines of which a sequence may join in this step. The line of a lane at its limit is
        neither ranked nor tried: it may be long, and every step would take longer for it."""
        if not self._limited:
            return lines
        self._closed.update([line.lane.name for line in lines if self._is_full(line)])
        self.holding.update([line.lane.name for line in lines if line and self._is_closed(line)])
        return tuple([line for line in lines if not self._is_closed(line)])

    def without_closed(self, ranked: Iterator[Sequence]) -> Iterator[Sequence]:
        """Leave out the waiting sequences of lanes that are closed when their turn comes."""
        if not self._limited:
            return ranked
        closed, running = self._closed, self.roster.running
        return (s for s in ranked if s.request.lane not in closed or s.number in running)

    def any_open(self, lines: Iterable[Line]) -> bool:
        """Whether a sequence waits in a lane that is not closed."""
        return any(line and not self._is_closed(line) for line in lines)

    def may_join(self, sequence: Sequence, *, whole: bool) -> bool:
        """Whether the sequence's lane has slots and blocks left for it. whole: for all its tokens
        to come. If it lacks blocks, others of the lane overtake it, but not for ever (PATIENCE).
        """
        lane = self._limit_of(sequence)
        if lane is None:
            return True
        if lane.name in self._closed or self._is_full(self.roster.lines[lane.name]):
            self._close(lane)
            return False
        need = self.pool.blocks_for(sequence.limit if whole else len(sequence.tokens))
        held = self.pool.blocks_of_lane[lane.name]
        if held + need <= lane.blocks.most or not held:  # alone it may: the limit was higher once
            return True
        self.holding.add(lane.name)
        passed = self._passed[lane.name]
        passed.append(sequence)
        if sequence.overtaken >= PATIENCE or len(passed) >= FAR:
            self._close(lane)
        return False

    def _is_full(self, line: Line) -> bool:
        """Whether the lane has no slot left, or no block."""
        lane = line.lane
        if line.running + self._joined[lane.name] >= line.most_running:
            return True
        return self.pool.blocks_of_lane[lane.name] >= lane.blocks.most

    def _is_closed(self, line: Line) -> bool:
        return line.lane.name in self._closed

    def _close(self, lane: Lane) -> None:
        self._closed.add(lane.name)
        self.holding.add(lane.name)

    def may_grow(self, sequence: Sequence, blocks: int) -> bool:
        """Whether the lane may hold so many more blocks. A sequence that runs alone in its lane may
        always grow: it was admitted when the lane could have as many."""
        if (lane := self._limit_of(sequence)) is None:
            return True
        held = self.pool.blocks_of_lane[lane.name]
        return held + blocks <= lane.blocks.most or held == len(sequence.blocks)

    def join(self, sequence: Sequence) -> None:
        """Count a sequence that joins; the roster counts it only at the end of the step."""
        self.keep_slot(sequence)
        for passed in self._passed.get(sequence.request.lane, ()):
            passed.overtaken += 1

    def keep_slot(self, sequence: Sequence) -> None:
        """Count a slot of the lane that the sequence takes or that is kept for it."""
        self._joined[sequence.request.lane] += 1

    def _limit_of(self, sequence: Sequence) -> Lane | None:
        return self._limited.get(sequence.request.lane) if self._limited else None
