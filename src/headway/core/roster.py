"""Who waits, who runs, and who has ended while a step still uses their blocks."""

from collections import Counter
from collections.abc import Callable, Collection

from headway.core.batch import Row
from headway.core.block_table import release
from headway.core.blocks import BlockPool
from headway.core.deadlines import Deadlines
from headway.core.lane import Budget, Line
from headway.core.load import LaneLoad
from headway.core.request import Request
from headway.core.sequence import Sequence
from headway.core.settings import Settings


class Roster:
    """Every sequence that has not ended is in exactly one place; by id it is found at once.

              add            join                leave                 settle
    (caller) ----> line.waiting ----> running -----------> leaving ------------> (blocks free)
                        ^               |  if in flight, else straight to the end
                        '--- preempted -'
    """

    def __init__(self, settings: Settings, pool: BlockPool) -> None:
        self.pool = pool
        self.lines = {lane.name: Line(lane) for lane in settings.lanes}
        self.by_id: dict[str, Sequence] = {}  # all that wait or run, or wait for their group
        # By number, in the order in which they are served: that of joining, but see Plan.choose.
        self.running: dict[int, Sequence] = {}
        self.deadlines = Deadlines()
        self.preemptions = 0  # so far
        self.enough = False  # whoever asks has said that nothing more comes for now
        self._leaving: dict[int, Sequence] = {}  # by number
        self._dropped: list[int] = []  # the executor is to hear of them with the next batch
        self._numbers = 0

    @property
    def waiting(self) -> int:
        return sum([len(line.waiting) for line in self.lines.values()])

    def budget(self, request: Request) -> Budget:
        """Its lane's; of a request that was refused because there is no such lane, no limit."""
        line = self.lines.get(request.lane)
        return line.lane.budget if line else Budget()

    def add(self, request: Request) -> None:
        assert request.id not in self.by_id, "ids are ours, and unique"
        self.enough = False
        leader = self.by_id.get(request.follows)
        sequence = Sequence(self._numbers, request, list(request.prompt), leader)
        self._numbers += 1
        self.by_id[request.id] = sequence
        self.deadlines.add(sequence)
        self.lines[request.lane].insert(sequence)

    def called(self, sequence: Sequence) -> None:
        """It waits no longer: a plan has put it among the running, or it has ended."""
        self.lines[sequence.request.lane].remove(sequence)

    def joined(self, sequence: Sequence) -> None:
        """A plan has put it among the running."""
        self.called(sequence)
        self.lines[sequence.request.lane].running += 1

    def stepped(self) -> None:
        """Who runs now is in the step that is being built."""
        for line in self.lines.values():
            line.batch = line.running

    def started(self, sequence: Sequence, now: int) -> None:
        """Its first row is being built."""
        sequence.first_scheduled, sequence.cached = now, sequence.scheduled
        self.lines[sequence.request.lane].started += len(sequence.request.prompt)

    def preempted(self, sequence: Sequence) -> None:
        """A plan has taken its blocks: it waits again, in its old place."""
        self._drop(sequence)
        sequence.preemptions += 1
        self.preemptions += 1
        line = self.lines[sequence.request.lane]
        line.running -= 1
        line.insert(sequence)

    def leave(self, sequence: Sequence) -> None:
        """It runs no longer. Its blocks are free at once, or when its last step is back."""
        del self.running[sequence.number]
        self.lines[sequence.request.lane].running -= 1
        self._drop(sequence)
        if sequence.in_flight:
            self._leaving[sequence.number] = sequence
        else:
            release(self.pool, sequence)

    def settle(self, row: Row) -> None:
        """A step is back that one of the leaving was in."""
        sequence = self._leaving[row.sequence]
        sequence.computed += len(row.tokens)
        if not sequence.in_flight:
            release(self.pool, self._leaving.pop(row.sequence))

    def forget(self, sequence: Sequence) -> None:
        """It has ended, and its caller hears of it."""
        sequence.ended = True
        del self.by_id[sequence.request.id]

    def dropped(self) -> tuple[int, ...]:
        """Whose state the executor can drop; each is said once."""
        told, self._dropped = tuple(self._dropped), []
        return told

    def loads(self, drain_rate: Callable[[str], float]) -> dict[str, LaneLoad]:
        """Of each lane, for the snapshot."""
        held = self.pool.held
        return {
            name: LaneLoad(
                line.lane,
                len(line.waiting),
                line.tokens,
                drain_rate(name),
                line.oldest,
                line.running,
                line.batch,
                held[name],
            )
            for name, line in self.lines.items()
        }

    def _drop(self, sequence: Sequence) -> None:
        if sequence.begun:
            self._dropped.append(sequence.number)
            sequence.begun = False

    def check(self, done: Collection[int]) -> None:
        """Raise AssertionError if anybody is lost, or a block. done: wait for their group's end."""
        holders = [*self.running.values(), *self._leaving.values()]
        self.pool.check(sequence.blocks for sequence in holders)
        size = self.pool.block_size
        for s in holders:
            assert s.computed <= s.scheduled <= s.room == len(s.blocks) * size
            assert s.fills == (s.published + 1) * size
        assert self.pool.held == Counter(s.request.lane for s in holders for _ in s.blocks)
        assert all(s.pending >= 0 for s in self.running.values())
        assert all(s.in_flight for s in self._leaving.values())
        waiting = [s for line in self.lines.values() for s in line.waiting]
        assert all(not s.blocks and not s.begun for s in waiting)
        live = sorted([*(s.number for s in waiting), *self.running, *done])
        assert live == sorted(s.number for s in self.by_id.values())
        running = Counter(s.request.lane for s in self.running.values())
        for name, line in self.lines.items():
            assert line.running == running[name]
            assert line.waiting == sorted(line.waiting, key=lambda s: s.number)
            assert line.tokens == sum(len(s.request.prompt) for s in line.waiting)
