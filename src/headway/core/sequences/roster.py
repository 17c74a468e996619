"""Which sequences wait, run, or have ended but are not gone yet. Only the Roster moves them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from headway.core.admission import has_place
from headway.core.batch import Begun, Row
from headway.core.deadlines import Deadlines
from headway.core.fairness.fair_line import FairLine
from headway.core.fairness.turns import Turns
from headway.core.kv.block_table import release
from headway.core.kv.blocks import BlockPool
from headway.core.lane import Budget, Line
from headway.core.load import LaneLoad
from headway.core.policies.fairly import Fairly
from headway.core.policies.memory import Lull
from headway.core.policies.relegate import Keep
from headway.core.request import NEVER, Finish, Request
from headway.core.sequences.sequence import RELEGATED, TIMED, UNTIMED, Sequence
from headway.core.settings import Settings

UNKNOWN = NEVER, 0, 0, 0  # LaneLoad.eta to eta_tokens before the first look ahead


class Roster:
    """Each sequence that has not been answered to its end is in exactly one place.

             add            join           withhold
    request ----> a line ---------> running ---------> withheld (until its group is answered)
                     ^                 |                   |
                     '---- preempt ----'------- remove ----'----> gone

    Blocks that a step in flight still uses are freed when that step is back: `settle`.
    """

    def __init__(self, settings: Settings, pool: BlockPool) -> None:
        self.pool = pool
        self.tells_tokens = False  # the executor wants all known tokens of a sequence (Begun)
        order = settings.policies.order
        self.lines: dict[str, Line] = {
            lane.name: FairLine(lane, order.weights) if isinstance(order, Fairly) else Line(lane)
            for lane in settings.lanes
        }
        self._take_lanes(settings)
        self._earlier: dict[int, Budget] = {}  # by number: the budget it came under, since retuned
        self.by_id: dict[str, Sequence] = {}  # waiting, running or withheld
        # By number, in the order of service: the order of joining, but see move_to_back.
        self.running: dict[int, Sequence] = {}
        self.withheld: dict[int, tuple[Sequence, Finish]] = {}  # by number
        self.deadlines, self.turns, self.lull = Deadlines(), Turns(), Lull()
        self.preemptions, self.last_victim = 0, -1  # so far; number of the last one; -1: none yet
        self.leaving: dict[int, Sequence] = {}  # ended, but a step in flight uses their blocks
        self._moved: list[Sequence] = []  # relegated or restored while waiting
        self._dropped: list[int] = []  # numbers that the next batch tells the executor to drop
        self._next_number = 0

    def _take_lanes(self, settings: Settings) -> None:
        self.limited_lanes = {lane.name: lane for lane in settings.lanes if lane.is_limited}
        self.keeping_lanes = tuple([lane for lane in settings.lanes if lane.step_tokens.least])
        self._ranks, self.version = settings.ranks, settings.version
        self._context, self.open_slots = settings.context, settings.open_slots

    def retune(self, settings: Settings) -> None:
        """Put other settings in force. Waiting and running requests are served by their lane's new
        budget, and judged by the budget they came under."""
        relegates = settings.policies.relegate != Keep()
        for sequence in self.by_id.values():
            lane = self.lines[sequence.request.lane].lane
            self._earlier.setdefault(sequence.number, lane.budget)
        self._take_lanes(settings)
        for lane in settings.lanes:
            self.lines[lane.name].retune(lane)
        for sequence in self.by_id.values():
            line = self.lines[sequence.request.lane]
            if sequence.tier == RELEGATED and not (relegates and line.relegates):
                self.restore(sequence)
            self._set_limits(sequence, line.lane.budget)

    @property
    def waiting(self) -> int:
        """How many sequences wait, in all lanes."""
        return sum([len(line.waiting) + len(line.relegated) for line in self.lines.values()])

    def budget(self, request: Request) -> Budget:
        """The budget of the request's lane now; without limits if there is no such lane."""
        line = self.lines.get(request.lane)
        return Budget() if line is None else line.lane.budget

    def judged_by(self, sequence: Sequence) -> Budget:
        """The budget that the sequence's lane had when the sequence came."""
        return self._earlier.get(sequence.number) or self.budget(sequence.request)

    def has_place(self, request: Request) -> bool:
        """Whether the request would be let in, unless the engine is closing."""
        if (line := self.lines.get(request.lane)) is None:
            return False
        blocks = min(self.pool.num_blocks, line.lane.blocks.most)
        return has_place(request, line, min(self._context, blocks * self.pool.block_size))

    def add(self, request: Request) -> Sequence:
        """Make a request's sequence, and let it wait at the end of its lane's line."""
        assert request.id not in self.by_id, "ids are ours, and unique"
        leader = self.by_id.get(request.follows)
        sequence = self.imagined(self._next_number, request, leader)
        self._next_number += 1
        self.by_id[request.id] = sequence
        self.deadlines.add(sequence)
        self.lines[request.lane].insert(sequence)
        return sequence

    def imagined(self, number: int, request: Request, leader: Sequence | None = None) -> Sequence:
        """The sequence that a request would have if it came now. It is in none of the places."""
        sequence = Sequence(number, request, request.tokens(), leader, self.version)
        self._set_limits(sequence, self.lines[request.lane].lane.budget)
        return sequence

    def _set_limits(self, sequence: Sequence, budget: Budget) -> None:
        """Set tier and deadlines by the lane's budget. A relegated sequence stays relegated."""
        if sequence.tier != RELEGATED:
            sequence.tier = TIMED if budget.is_timed else UNTIMED
        sequence.tpot, arrived = budget.tpot, sequence.request.arrived
        sequence.first_by = budget.first_by(arrived)
        sequence.done_by = min(budget.done_by(arrived), sequence.request.due)

    def join(self, sequences: Iterable[Sequence]) -> None:
        """Move waiting sequences to running. Their blocks are reserved already."""
        for sequence in sequences:
            self.turns.joins(sequence, self.lines.values(), self.pool)
            self.lines[sequence.request.lane].join(sequence)
            sequence.hit = 0
            self.running[sequence.number] = sequence

    def preempt(self, sequence: Sequence) -> None:
        """Take a running sequence's blocks. It waits in its old place; to the executor it ended."""
        line = self._stop_running(sequence)
        sequence.lost = sequence.computed
        sequence.preemptions += 1
        self.preemptions += 1
        self.last_victim = sequence.number
        release(self.pool, sequence)
        line.insert(sequence)

    def relegate(self, sequence: Sequence) -> None:
        """Mark a sequence that can no longer keep its budget. If it waits, it waits apart now."""
        sequence.was_relegated = True
        self._move(sequence, RELEGATED)

    def restore(self, sequence: Sequence) -> None:
        """Take a relegation back: the sequence is in time after all."""
        self._move(sequence, TIMED)

    def _move(self, sequence: Sequence, tier: int) -> None:
        line = self.lines[sequence.request.lane]
        if sequence.number in self.running:
            sequence.tier = tier
            line.moves += 1
        else:
            line.remove(sequence)
            sequence.tier = tier
            line.insert(sequence)
            self._moved.append(sequence)

    def take_moved(self) -> list[Sequence]:
        """Return the sequences relegated or restored while they waited, each change once."""
        taken, self._moved = self._moved, []
        return taken

    def move_to_back(self, sequences: Iterable[Sequence]) -> None:
        """Serve these running sequences after the others, from the next step on."""
        for sequence in sequences:
            self.running[sequence.number] = self.running.pop(sequence.number)

    def withhold(self, sequence: Sequence, finish: Finish) -> None:
        """End a sequence that ended by itself. Its caller hears of it when its group has ended."""
        self._end_running(sequence)
        self.withheld[sequence.number] = sequence, finish

    def take_withheld(self) -> list[tuple[Sequence, Finish]]:
        """Return the withheld sequences and why each ended, for the scheduler to close them."""
        taken, self.withheld = [*self.withheld.values()], {}
        return taken

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence that has ended: from running, withheld or its line."""
        if sequence.number in self.running:
            self._end_running(sequence)
        elif not self.withheld.pop(sequence.number, None):
            self.lines[sequence.request.lane].remove(sequence)

    def close(self, sequence: Sequence) -> None:
        """Mark a removed sequence as ended: its caller is told now."""
        sequence.ended = True
        del self.by_id[sequence.request.id]
        self._earlier.pop(sequence.number, None)

    def settle(self, row: Row) -> None:
        """Settle a row of a step that is back: its sequence had ended while in flight. The blocks
        are freed once no step in flight uses them."""
        sequence = self.leaving[row.sequence]
        sequence.computed += len(row.tokens)
        if not sequence.in_flight:
            release(self.pool, self.leaving.pop(row.sequence))

    def begin(self, sequence: Sequence, now: int) -> Begun:
        """What the executor needs before a sequence's first row, or first since a preemption."""
        request, sequence.begun = sequence.request, True
        if not sequence.is_started:
            sequence.first_scheduled, sequence.cached = now, sequence.scheduled
            self.lines[request.lane].started += len(request.prompt)
        sequence.recomputed += max(0, sequence.lost - sequence.scheduled)
        tells = self.tells_tokens or request.sampling.reads_tokens
        known = tuple(sequence.tokens) if tells else ()
        length, sampling = len(request.prompt), request.sampling
        return Begun(sequence.number, length, sampling, known, request.adapter, request.pooling)

    def note_batch(self) -> None:
        """Note how many sequences of each lane run as a step is built."""
        for line in self.lines.values():
            line.batch = line.running

    def take_dropped(self) -> tuple[int, ...]:
        """Return, each once, the numbers of sequences whose state the executor can drop."""
        taken, self._dropped = tuple(self._dropped), []
        return taken

    def loads(
        self,
        drain_rate: Callable[[str], float],
        etas: Mapping[str, tuple[int, int, int, int]],
        windows: Mapping[str, int],
    ) -> dict[str, LaneLoad]:
        """A snapshot of each lane. All arguments are by lane. drain_rate: prompt tokens per second.
        etas: LaneLoad.eta to eta_tokens. windows: LaneLoad.window."""
        return {
            name: LaneLoad(
                line.lane,
                len(line),
                line.tokens,
                drain_rate(name),
                line.oldest,
                line.running,
                line.batch,
                self.pool.blocks_of_lane[name],
                min(NEVER, line.lane.blocks.most * self.pool.block_size),
                len(line.relegated),
                line.relegated_tokens,
                *self._ranks[name],
                *etas.get(name, UNKNOWN),
                line.slots,
                windows.get(name, NEVER),
            )
            for name, line in self.lines.items()
        }

    def _stop_running(self, sequence: Sequence) -> Line:
        sequence.forget_unknown()
        del self.running[sequence.number]
        line = self.lines[sequence.request.lane]
        line.leave(sequence)
        if sequence.begun:
            self._dropped.append(sequence.number)
            sequence.begun = False
        return line

    def _end_running(self, sequence: Sequence) -> None:
        self._stop_running(sequence)
        if sequence.in_flight:
            self.leaving[sequence.number] = sequence
        else:
            release(self.pool, sequence)

    def check(self) -> None:
        """Raise AssertionError if a sequence is in no place or in two, or a block is lost."""
        holders = [*self.running.values(), *self.leaving.values()]
        self.pool.check(sequence.blocks for sequence in holders)
        size = self.pool.block_size
        for s in holders:
            assert s.computed <= s.scheduled <= s.room
            assert s.room == len(s.blocks) * size
            assert s.full_at == (s.published + 1) * size
        by_lane = Counter(s.request.lane for s in holders for _ in s.blocks)
        assert self.pool.blocks_of_lane == by_lane
        assert all(s.pending >= 0 for s in self.running.values())
        assert all(s.in_flight for s in self.leaving.values())
        waiting = [s for line in self.lines.values() for s in (*line.waiting, *line.relegated)]
        assert all(not s.blocks and not s.begun for s in waiting)
        live = sorted([*(s.number for s in waiting), *self.running, *self.withheld])
        assert live == sorted(s.number for s in self.by_id.values())
        running = Counter(s.request.lane for s in self.running.values())
        for name, line in self.lines.items():
            assert line.running == running[name]
            if isinstance(line, FairLine):
                line.check()
            for part in (line.waiting, line.relegated):
                assert part == sorted(part, key=lambda s: s.number)
            assert all(s.tier != RELEGATED for s in line.waiting)
            assert all(s.tier == RELEGATED for s in line.relegated)
            hopeful = sum([len(s.request.prompt) for s in line.waiting])
            late = sum([len(s.request.prompt) for s in line.relegated])
            assert [line.tokens, line.relegated_tokens] == [hopeful + late, late]
