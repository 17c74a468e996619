"""The rule of docs/strategies.md that fits the traffic, and the strategies it suggests."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.lane import Lane
from headway.core.request import NEVER
from headway.costing.token_cost import TokenCost

STALL = 1.0  # of the tightest TPOT budget: a prompt that takes longer should be chunked


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of thumb."""

    strategies: tuple[str, ...]  # the suggested ones
    text: str
    section: str  # of docs/strategies.md


BUDGETS = Rule(
    ("budgets", "deadline-order", "slack-steps", "relegation"),
    "lanes with different budgets share the engine: go by budgets",
    "budgets",
)
FILLER = Rule(
    ("filler", "budgets"),
    "a lane without a budget fills what the others leave, and gives slots back",
    "filler",
)
CHUNKS = Rule(
    ("first-come", "priority", "shortest-first", "slack-steps", "memory-ahead", "budgets"),
    "a long prompt takes longer than the tightest TPOT: compute prompts in chunks",
    "mixed-chunks",
)
WHOLE = Rule(
    ("continuous-mixed", "continuous-prefill-first", "continuous-alternate"),
    "prompts are short beside the budgets: compute them whole, requests join between steps",
    "mixed-whole-prompts",
)


def rule_of_thumb(lanes: Sequence[Lane], long_prompt: int, price: TokenCost) -> Rule:
    """The first rule that fits. long_prompt: p95 of the prompts, in tokens."""
    timed = [lane for lane in lanes if lane.budget.is_timed]
    if len(timed) < len(lanes):
        return FILLER
    if len({lane.budget for lane in timed}) > 1:
        return BUDGETS
    tightest = min(lane.budget.tpot for lane in timed)
    if tightest != NEVER and long_prompt * price.prompt > STALL * tightest:
        return CHUNKS
    return WHOLE
