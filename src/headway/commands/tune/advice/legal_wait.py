"""The longest legal wait of each lane: what its budget leaves for the queue."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.core.lane import Lane
from headway.core.request import NEVER
from headway.traffic.endpoint import UnloadedLatency


@dataclass(frozen=True, slots=True)
class LegalWait:
    """How long a request of a lane may wait and still be good. Times are nanoseconds."""

    lane: str
    limit: str  # the limit that sets the wait: ttft, e2e or queue; empty: the lane has none of them
    budget: int  # the value of that limit; NEVER: none
    service: int  # time that a long request alone takes to reach the limit's event
    running: int  # at most what is left of the running step or group

    @property
    def wait(self) -> int:
        """Budget - service - rest of the running step or group; negative: always late."""
        return NEVER if self.budget == NEVER else self.budget - self.service - self.running

    @property
    def plain(self) -> dict[str, object]:
        """As JSON, in milliseconds; None: no limit."""
        limited = self.budget != NEVER
        return {
            "limit": self.limit,
            "wait_ms": self.wait / 1e6 if limited else None,
            "budget_ms": self.budget / 1e6 if limited else None,
            "service_ms": self.service / 1e6,
            "running_ms": self.running / 1e6,
        }


def legal_waits(
    lanes: Iterable[Lane], unloaded: Mapping[str, UnloadedLatency], running: int
) -> list[LegalWait]:
    """The longest legal wait of every lane, by the limit that leaves the least.

    unloaded: a long request's latency alone, by lane. running: nanoseconds that a step or a group
    takes at most. A queue limit ends when the request starts, so no service is subtracted.
    """
    return [_legal_wait(lane, unloaded.get(lane.name), running) for lane in lanes]


def _legal_wait(lane: Lane, alone: UnloadedLatency | None, running: int) -> LegalWait:
    ttft, e2e = (alone.ttft, alone.e2e) if alone else (0, 0)
    budget = lane.budget
    waits = [
        LegalWait(lane.name, "ttft", budget.ttft, ttft, running),
        LegalWait(lane.name, "e2e", budget.e2e, e2e, running),
        LegalWait(lane.name, "queue", budget.queue, 0, running),
    ]
    limited = [each for each in waits if each.budget != NEVER]
    return min(limited, key=lambda each: each.wait, default=LegalWait(lane.name, "", NEVER, 0, 0))
