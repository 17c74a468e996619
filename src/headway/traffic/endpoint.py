"""Endpoints with their latency budgets, and the demo's four endpoints."""

from collections.abc import Mapping
from dataclasses import dataclass

from headway.core.lane import Budget, Lane
from headway.core.request import NEVER
from headway.traffic.endpoint_place import Place


@dataclass(frozen=True, slots=True)
class UnloadedLatency:
    """The latency of a request that is alone on the engine, in nanoseconds."""

    ttft: int
    tpot: int
    e2e: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint and its limits: multiples of its unloaded latency, to suit every machine.

    `fixed` states limits in nanoseconds, for users who know what their callers need.
    """

    name: str
    serves: str
    source: str  # of its arrival times and token counts
    priority: int  # lower goes first, under every strategy
    ttft: float = 0.0  # multiple of the unloaded TTFT; 0: no such limit
    tpot: float = 0.0
    e2e: float = 0.0
    fixed: Budget = Budget()  # if a limit is stated both ways, the lower one holds
    place: Place = Place()  # how much of the engine its lane may have

    @property
    def is_offline(self) -> bool:
        return not (self.ttft or self.tpot or self.e2e) and self.fixed == Budget()

    @property
    def can_enforce(self) -> bool:
        """Whether the endpoint has a limit after which a request can be dropped."""
        return self.e2e > 0 or min(self.fixed.e2e, self.fixed.queue) != NEVER

    def lane(self, unloaded: Mapping[str, UnloadedLatency]) -> Lane:
        """The lane of this endpoint. Each limit is the lower of the fixed one and the one
        derived from the endpoint's unloaded latency."""
        alone = unloaded.get(self.name, UnloadedLatency(0, 0))
        budget = Budget(
            ttft=_lower(self.ttft, alone.ttft, self.fixed.ttft),
            tpot=_lower(self.tpot, alone.tpot, self.fixed.tpot),
            e2e=_lower(self.e2e, alone.e2e, self.fixed.e2e),
            queue=self.fixed.queue,
        )
        place = self.place
        return Lane(
            self.name,
            budget,
            self.priority,
            place.max_waiting,
            place.max_waiting_tokens,
            place.slots,
            place.blocks,
            place.step_tokens,
            place.chunk,
        )


def _lower(times: float, alone: int, fixed: int) -> int:
    return min(fixed, round(times * alone)) if times else fixed


VOICE = Endpoint(
    "voice",
    "turns of a spoken dialogue, sparse and urgent",
    "synthetic: Poisson arrivals, prompts of 16 to 48 tokens, answers of 8 to 24",
    priority=0,
    ttft=3.0,
    tpot=5.0,
)
COMPLETION = Endpoint(
    "completion",
    "inline code completion",
    "azure2023-code, recorded",
    priority=1,
    ttft=3.0,
    tpot=5.0,
)
SUPPORT = Endpoint(
    "support",
    "drafts of answers to customers",
    "azure2023-conv, recorded",
    priority=2,
    ttft=6.0,
    tpot=10.0,
)
LABELLING = Endpoint(
    "labelling",
    "a nightly backlog to label, no deadline",
    "synthetic: all there at the beginning, prompts of 64 to 192 tokens, answers of 2 to 8",
    priority=3,
)
ENDPOINTS = (VOICE, COMPLETION, SUPPORT, LABELLING)
