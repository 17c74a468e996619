"""An endpoint: its latency budget (Budget), its settings (Lane) and its waiting line (Line)."""

from bisect import bisect_left, insort
from dataclasses import dataclass
from operator import attrgetter

from headway.core.request import NEVER
from headway.core.sequence import Sequence

_number = attrgetter("number")


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits in nanoseconds; a request inside all of them is good. NEVER: no limit."""

    ttft: int = NEVER
    tpot: int = NEVER
    e2e: int = NEVER
    queue: int = NEVER

    def start_by(self, arrived: int) -> int:
        """The latest start inside the queue limit for a request that arrived then."""
        return NEVER if self.queue == NEVER else arrived + self.queue


@dataclass(frozen=True, slots=True)
class Lane:
    """What an operator configures for an endpoint."""

    name: str = "default"
    budget: Budget = Budget()
    priority: int = 0  # lower goes first
    max_waiting: int = 10_000
    max_waiting_tokens: int = NEVER  # prompt tokens


class Line:
    """The sequences that wait in a lane, by number. Policies read it, the roster changes it."""

    __slots__ = ("batch", "lane", "running", "started", "tokens", "waiting")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.waiting: list[Sequence] = []
        self.tokens = 0  # prompt tokens that wait
        self.started = 0  # prompt tokens of all sequences that have ever started
        self.running = 0  # sequences
        self.batch = 0  # sequences that ran when the latest step was built

    @property
    def oldest(self) -> int:
        """When the first in line arrived; NEVER if nobody waits."""
        return self.waiting[0].request.arrived if self.waiting else NEVER

    def insert(self, sequence: Sequence) -> None:
        """Insert by number: a new one at the end, a preempted one at its old place."""
        insort(self.waiting, sequence, key=_number)
        self.tokens += len(sequence.request.prompt)

    def remove(self, sequence: Sequence) -> None:
        """Take it out of the line."""
        at = bisect_left(self.waiting, sequence.number, key=_number)
        assert self.waiting.pop(at) is sequence, "it does not wait here"
        self.tokens -= len(sequence.request.prompt)
