"""A named set of policies for the engine (Strategy), and the three strategies of the demo."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic, Static
from headway.core.policies.mix import Mixed, PrefillFirst
from headway.core.policies.order import Priority
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.costing.token_cost import TokenCost

SLOTS = 16  # default slots of the running batch, and the most members of a group
CHUNKS = (32, 512)  # least and most prompt tokens per step under continuous batching
WINDOW_SHARE = 0.25  # share of a lane's limits that Dynamic may hold its oldest request
OFFLINE_WINDOW = (
    3_600_000_000_000  # ns, for a lane without such limits: it fills the groups of other lanes
)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A batching strategy: its name, its rule in words and its policies."""

    name: str
    rule: str  # in words
    policies: Policies

    @property
    def settings(self) -> dict[str, Any]:
        return dict(policy_as_json(self.policies))


def demo_strategies(
    lanes: Collection[Lane], token_cost: TokenCost, context: int
) -> tuple[Strategy, ...]:
    """Static, dynamic and continuous batching, fitted to the lanes' budgets.

    All use the same order: by lane priority, then first come, first served within a lane. A
    group's prompts run in one step, padded to the longest prompt.
    """
    chunk = chunk_within_budgets(lanes, token_cost)
    group = SLOTS * context  # room for any group's prompts
    static = Policies(
        join=Static(SLOTS),
        order=Priority(),
        mix=PrefillFirst(),
        chunk=Whole(),
        step_tokens=group,
    )
    windows = windows_from_budgets(lanes)
    dynamic = Policies(
        join=Dynamic(SLOTS, OFFLINE_WINDOW, windows),
        order=Priority(),
        mix=PrefillFirst(),
        chunk=Whole(),
        step_tokens=group,
    )
    continuous = Policies(
        join=Continuous(SLOTS),
        order=Priority(),
        mix=Mixed(),
        chunk=Fixed(chunk),
        step_tokens=SLOTS + chunk,
    )
    return (
        Strategy(
            "static",
            f"groups of exactly {SLOTS}, padded to the longest prompt, run to the last answer",
            static,
        ),
        Strategy(
            "dynamic",
            f"groups of up to {SLOTS}, padded likewise, begun with fewer once an endpoint's oldest "
            f"has waited {WINDOW_SHARE:g} of its TTFT budget",
            dynamic,
        ),
        Strategy(
            "continuous",
            f"{SLOTS} slots, joined and left at any step; prompts in chunks of {chunk} tokens",
            continuous,
        ),
    )


def windows_from_budgets(lanes: Iterable[Lane]) -> dict[str, int]:
    """Nanoseconds that each lane's oldest request may be held: a share of its TTFT, queue and
    end-to-end limits."""
    limits = {
        lane.name: min(lane.budget.ttft, lane.budget.queue, lane.budget.e2e) for lane in lanes
    }
    return {
        name: OFFLINE_WINDOW if limit == NEVER else round(WINDOW_SHARE * limit)
        for name, limit in limits.items()
    }


def chunk_within_budgets(lanes: Iterable[Lane], token_cost: TokenCost, slots: int = SLOTS) -> int:
    """Prompt tokens that fit into a step with a full batch, inside the tightest TPOT budget.

    This is Sarathi-Serve's rule (OSDI 2024), within CHUNKS and rounded down to a power of two.
    """
    tightest = min(lane.budget.tpot for lane in lanes)
    room = (tightest - slots * token_cost.answer) / token_cost.prompt
    least, most = CHUNKS
    return 1 << int(max(least, min(most, room))).bit_length() - 1


def policy_as_json(value: Any) -> Any:
    """A policy as JSON: its name, and its fields if it has any."""
    if not is_dataclass(value):
        return dict(value) if isinstance(value, dict) else value
    named = {each.name: policy_as_json(getattr(value, each.name)) for each in fields(value)}
    return {"policy": type(value).__name__, **named}
