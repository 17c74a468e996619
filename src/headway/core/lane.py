"""An endpoint: its latency budget (Budget), its settings (Lane) and its waiting line (Line)."""

from bisect import bisect_left, insort
from dataclasses import dataclass
from operator import attrgetter

from headway.core.pickled import by_position
from headway.core.request import NEVER
from headway.core.sequences.sequence import RELEGATED, Sequence
from headway.errors import SettingError

_number = attrgetter("number")


def _after(time: int, limit: int) -> int:
    return NEVER if limit == NEVER else time + limit


@by_position
@dataclass(frozen=True, slots=True)
class Budget:
    """Limits in nanoseconds; a request inside all of them is good. NEVER: no limit."""

    ttft: int = NEVER
    tpot: int = NEVER
    e2e: int = NEVER
    queue: int = NEVER

    @property
    def is_timed(self) -> bool:
        """Whether it has any limit."""
        return min(self.ttft, self.tpot, self.e2e, self.queue) != NEVER

    @property
    def is_felt_by_the_running(self) -> bool:
        """Whether a larger batch can break one of its limits: any limit but the queue limit."""
        return min(self.ttft, self.tpot, self.e2e) != NEVER

    def start_by(self, arrived: int) -> int:
        """The latest start inside the queue limit, for a request that arrived at this time."""
        return _after(arrived, self.queue)

    def first_by(self, arrived: int) -> int:
        """The latest first token inside the limit."""
        return _after(arrived, self.ttft)

    def done_by(self, arrived: int) -> int:
        """The latest end inside the limit."""
        return _after(arrived, self.e2e)


@by_position
@dataclass(frozen=True, slots=True)
class Share:
    """A lane's share of a resource: others cannot take `least`; the lane gets `most` at most."""

    least: int = 0
    most: int = NEVER
    low: int = 0  # the cap follows the load between this and `most`; 0: the cap is fixed

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise SettingError(f"a share is from {self.least} to {self.most}: 0 <= least <= most")
        if self.low and self.low > self.most:
            raise SettingError(
                f"between {self.low} and {self.most}: the first must not exceed the second"
            )
        if self.low and not max(1, self.least) <= self.low < NEVER > self.most:
            raise SettingError(
                f"between {self.low} and {self.most}: the first must be 1 or more, and no less "
                f"than the least, {self.least}"
            )

    @property
    def follows(self) -> bool:
        """Whether the cap follows the load."""
        return self.low > 0


ALL = Share()  # one value, so that it is pickled once


# What a lane does with a request that can no longer be in time: serve it behind the others, end it
# while it waits, or leave it in its place.
LATE = RELEGATE, REFUSE, TAKE = "relegate", "refuse", "take"


@by_position
@dataclass(frozen=True, slots=True)
class Lane:
    """What an operator configures for an endpoint."""

    name: str = "default"
    budget: Budget = Budget()
    priority: int = 0  # lower goes first
    max_waiting: int = 10_000
    max_waiting_tokens: int = NEVER  # prompt tokens
    slots: Share = ALL  # sequences that run at once
    blocks: Share = ALL  # of the KV memory; a block that sequences share counts for each
    step_tokens: Share = ALL  # of a step
    chunk: int = NEVER  # prompt tokens of a step, at most
    late: str = RELEGATE  # what becomes of a request that can no longer be in time

    def __post_init__(self) -> None:
        if self.late not in LATE:
            raise SettingError(f"lane {self.name!r}: late is one of {LATE}, not {self.late!r}")

    @property
    def refuses_late(self) -> bool:
        """Whether a waiting request that is not expected in time is ended."""
        return self.late == REFUSE

    @property
    def relegates(self) -> bool:
        """Whether its requests can be found late at all: it has a budget and acts on lateness."""
        return self.budget.is_timed and self.late != TAKE

    @property
    def is_limited(self) -> bool:
        """Whether its chunk or any of its shares is capped."""
        shares = (self.slots, self.blocks, self.step_tokens)
        return self.chunk != NEVER or any(share.most != NEVER for share in shares)


class Line:
    """The sequences that wait in a lane, by number. Policies read it, the roster changes it.

    Relegated sequences, which can no longer keep their budget, wait apart, behind the others.
    """

    __slots__ = (
        *("lane", "is_timed", "relegates", "waiting", "relegated", "tokens", "relegated_tokens"),
        *("started", "running", "batch", "longest", "slots", "has_dues", "moves"),
    )

    def __init__(self, lane: Lane) -> None:
        self.has_dues = False  # a waiting sequence may have a time to end by (done_by)
        self.moves = 0  # changes so far: sequences that came, joined, moved or left, and retunes
        self._take(lane)
        self.waiting: list[Sequence] = []
        self.relegated: list[Sequence] = []
        self.tokens = 0  # prompt tokens that wait, in both lists
        self.relegated_tokens = 0  # prompt tokens that wait in `relegated`
        self.started = 0  # prompt tokens of all sequences that have ever started
        self.running = 0  # sequences
        self.batch = 0  # sequences that ran when the latest step was built
        self.longest = 0  # the most tokens that a sequence had when it came to wait
        self.slots = lane.slots.low or lane.slots.most  # sequences that may run now, at most

    def retune(self, lane: Lane) -> None:
        """Put other settings of the lane in force. Slots that follow the load start again only if
        their share was changed."""
        self.moves += 1
        if lane.slots != self.lane.slots:
            self.slots = lane.slots.low or lane.slots.most
        self._take(lane)

    def _take(self, lane: Lane) -> None:
        self.lane = lane
        # Read several times in each step.
        self.is_timed, self.relegates = lane.budget.is_timed, lane.relegates
        self.has_dues |= lane.budget.e2e != NEVER

    @property
    def oldest(self) -> int:
        """When the first sequence in line arrived; NEVER if none waits."""
        if not self.relegated:
            return self.waiting[0].request.arrived if self.waiting else NEVER
        return min([part[0].request.arrived for part in (self.waiting, self.relegated) if part])

    @property
    def most_running(self) -> int:
        """How many sequences may run now. Each may want a token of the same step."""
        return min(self.slots, self.lane.step_tokens.most)

    @property
    def is_full(self) -> bool:
        """Whether as many sequences run as may, so that no other can join."""
        return self.running >= self.most_running

    def lacks_blocks(self, sequence: Sequence, held: int, block_size: int) -> bool:
        """Whether the lane, which holds so many blocks, may not have those that the sequence needs
        to join. A lane that holds none may."""
        need = -(-len(sequence.tokens) // block_size)
        return held > 0 and held + need > self.lane.blocks.most

    @property
    def later(self) -> list[Sequence]:
        """The sequences that wait behind requests in time: all, if the lane has no budget."""
        return self.relegated if self.is_timed else self.waiting or self.relegated

    def __len__(self) -> int:
        return len(self.waiting) + len(self.relegated)

    def insert(self, sequence: Sequence) -> None:
        """Insert a sequence by number: a new one at the end, a preempted one at its old place."""
        insort(self._part(sequence), sequence, key=_number)
        self.moves += 1
        self._count(sequence, len(sequence.request.prompt))
        self.longest = max(self.longest, len(sequence.tokens))
        if sequence.done_by != NEVER:
            self.has_dues = True

    def with_imagined(self, sequence: Sequence) -> "Line":
        """A copy to look ahead with, in which this sequence waits behind the others."""
        copy = Line(self.lane)
        copy.waiting, copy.relegated = [*self.waiting, sequence], self.relegated
        copy.running, copy.slots = self.running, self.slots
        copy.has_dues, copy.longest = self.has_dues, self.longest
        return copy

    def remove(self, sequence: Sequence) -> None:
        """Take a waiting sequence out of the line."""
        part = self._part(sequence)
        at = bisect_left(part, sequence.number, key=_number)
        assert part.pop(at) is sequence, "it does not wait here"
        self.moves += 1
        self._count(sequence, -len(sequence.request.prompt))

    def join(self, sequence: Sequence) -> None:
        """Turn a waiting sequence into a running one. Its blocks are reserved already."""
        self.remove(sequence)
        self.running += 1

    def leave(self, sequence: Sequence) -> None:
        """Count out a sequence that no longer runs."""
        self.running -= 1
        self.moves += 1

    def _count(self, sequence: Sequence, tokens: int) -> None:
        self.tokens += tokens
        if sequence.tier == RELEGATED:
            self.relegated_tokens += tokens

    def _part(self, sequence: Sequence) -> list[Sequence]:
        return self.relegated if sequence.tier == RELEGATED else self.waiting
