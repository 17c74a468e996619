"""Series: what the page shows of the last 15 minutes, in parts of five seconds."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER, Finish
from headway.server.config.durations import SECOND
from headway.server.dashboard.time_counts import TimeCounts

PART = 5 * SECOND  # nanoseconds
KEPT = 180  # parts: 15 minutes


@dataclass(slots=True)
class LanePart:
    """A lane's requests that ended in one part."""

    ended: int = 0  # refused ones included, unjudged ones not: attainment is good over these
    good: int = 0
    refused: int = 0  # at the door, or because they would have been late
    abandoned: int = 0  # their clients left before the first token
    queue: TimeCounts = field(default_factory=TimeCounts)
    ttft: TimeCounts = field(default_factory=TimeCounts)

    def add(self, part: "LanePart") -> None:
        """Add this part's requests."""
        self._count(part, 1)
        self.queue.add(part.queue)
        self.ttft.add(part.ttft)

    def take_off(self, part: "LanePart") -> None:
        """Subtract this part's requests, which were added before."""
        self._count(part, -1)
        self.queue.take_off(part.queue)
        self.ttft.take_off(part.ttft)

    def _count(self, part: "LanePart", times: int) -> None:
        self.ended += times * part.ended
        self.good += times * part.good
        self.refused += times * part.refused
        self.abandoned += times * part.abandoned


class SlidingSum:
    """The sum of a lane's parts in a sliding window. Each part is added once and taken off once,
    however often the sum is asked for.

    part     |  1  |  2  |  3  |  4  |  5  |  6
    window         |-----------------------|       then 2 is taken off and 6 is added
    """

    def __init__(self) -> None:
        self._parts: deque[LanePart] = deque()  # in the sum
        self._sum = LanePart()

    def of(self, parts: Sequence[LanePart]) -> LanePart:
        """The sum of these parts. They are the last call's parts, less some of the first, plus
        later ones. Only the last part may still grow."""
        mine, total = self._parts, LanePart()
        while mine and (not parts or mine[0] is not parts[0]):
            self._sum.take_off(mine.popleft())
        for part in parts[len(mine) : -1]:
            self._sum.add(part)
            mine.append(part)
        for part in (self._sum, *parts[-1:]):
            total.add(part)
        return total


class Part:
    """Five seconds of one engine."""

    __slots__ = ("blocks", "lanes", "number", "row_ns", "running", "step_ns", "steps", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number  # since the zero of the engine's clock
        self.steps = self.step_ns = 0
        self.row_ns = 0  # nanoseconds times rows, summed over the steps
        self.running = self.waiting = self.blocks = 0  # the largest value after any step
        self.lanes: dict[str, LanePart] = {}

    def lane(self, name: str) -> LanePart:
        """The lane's part, created if there is none yet."""
        found = self.lanes.get(name)
        return found if found else self.lanes.setdefault(name, LanePart())


class Series:
    """A bounded ring of parts. Times are nanoseconds of the engine's clock."""

    def __init__(self) -> None:
        self._parts: deque[Part] = deque([Part(0)], maxlen=KEPT)

    def at(self, now: int) -> Part:
        """The part to count in at this time; for an earlier time, the latest part."""
        part = self._parts[-1]
        if now >= (part.number + 1) * PART:
            part = Part(now // PART)
            self._parts.append(part)
        return part

    def steps(self, rows: Sequence[StepRow], num_blocks: int) -> None:
        """Count steps."""
        for row in rows:
            part = self.at(row.began + row.nanoseconds)
            part.steps += 1
            part.step_ns += row.nanoseconds
            part.row_ns += row.nanoseconds * row.rows
            part.running = max(part.running, row.running)
            part.waiting = max(part.waiting, row.waiting)
            part.blocks = max(part.blocks, num_blocks - row.free_blocks)

    def ended(self, row: RequestRow, refused: bool) -> None:
        """Count a request by its row."""
        lane = self.at(row.finished).lane(row.lane)
        if not is_unjudged(row.finish, row.first_token != NEVER, _is_kept(row)):
            lane.ended += 1
            lane.good += row.good
        lane.refused += refused
        if row.queue != NEVER:
            lane.queue.see(row.queue)
        if row.ttft != NEVER:
            lane.ttft.see(row.ttft)

    def between(self, since: int, until: int) -> list[Part]:
        """The parts that began from `since` until before `until`."""
        return [part for part in self._parts if since <= part.number * PART < until]


def is_unjudged(finish: Finish, began: bool, kept: bool) -> bool:
    """Whether the client left an answer that had begun and kept its limits so far, or the grammar
    ended the request: neither says how well the lane is served.

    began: whether the answer had its first token. kept: whether it kept its limits so far.
    """
    return (finish is Finish.CANCELLED and began and kept) or finish is Finish.UNSATISFIABLE


def _is_kept(row: RequestRow) -> bool:
    """Whether the request kept its limits so far. An answer that was left has no E2E."""
    limits = row.budget
    return row.ttft <= limits.ttft and row.tpot <= limits.tpot and row.queue <= limits.queue


def of_lane(parts: Iterable[Part], name: str) -> list[LanePart]:
    """The lane's parts within these parts, in order; a part may have none."""
    return [part.lanes[name] for part in parts if name in part.lanes]
