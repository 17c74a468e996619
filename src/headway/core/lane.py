"""An endpoint's waiting line, with its latency budget and its limits."""

from bisect import bisect_left, insort
from dataclasses import dataclass
from operator import attrgetter

from headway.core.request import NEVER
from headway.core.sequence import Sequence

_number = attrgetter("number")


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits in nanoseconds that make a request good; NEVER does not bind."""

    ttft: int = NEVER
    tpot: int = NEVER
    e2e: int = NEVER
    queue: int = NEVER

    def start_by(self, arrived: int) -> int:
        """When the longest legal wait of one that has arrived then is over."""
        return NEVER if self.queue == NEVER else arrived + self.queue


@dataclass(frozen=True, slots=True)
class Lane:
    """What an operator configures of an endpoint."""

    name: str = "default"
    budget: Budget = Budget()
    priority: int = 0  # lower goes first
    max_waiting: int = 10_000
    max_waiting_tokens: int = NEVER  # of prompts


class Line:
    """Those who wait in a lane, by number. Policies read it; only the roster changes it."""

    __slots__ = ("batch", "lane", "running", "started", "tokens", "waiting")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.waiting: list[Sequence] = []
        self.tokens = 0  # prompt tokens that wait
        self.started = 0  # prompt tokens of all who have ever left it for a batch
        self.running = 0  # of the lane's sequences
        self.batch = 0  # so many ran when the latest step was built

    @property
    def oldest(self) -> int:
        """Arrival of the one at the head; NEVER if nobody waits."""
        return self.waiting[0].request.arrived if self.waiting else NEVER

    def insert(self, sequence: Sequence) -> None:
        """At its place by number: the end for a new one, its old place for a preempted one."""
        insort(self.waiting, sequence, key=_number)
        self.tokens += len(sequence.request.prompt)

    def remove(self, sequence: Sequence) -> None:
        at = bisect_left(self.waiting, sequence.number, key=_number)
        assert self.waiting.pop(at) is sequence, "it does not wait here"
        self.tokens -= len(sequence.request.prompt)
