"""What a strategy is fitted to (StrategyInputs)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headway.core.lane import Lane
from headway.core.policies.chunk import Whole
from headway.core.policies.join import Join
from headway.core.policies.mix import PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.costing.token_cost import TokenCost
from headway.strategies.strategy import (
    OFFLINE_WINDOW,
    SLOTS,
    Strategy,
    chunk_within_budgets,
    windows_from_budgets,
)
from headway.strategies.window import Window


@dataclass(frozen=True, slots=True)
class StrategyInputs:
    """What a strategy is fitted to: lanes, token cost, context, prompts and slots."""

    lanes: Collection[Lane]
    token_cost: TokenCost
    context: int
    prompts: Sequence[int] = ()  # prompt lengths in tokens, ascending
    stated: Mapping[str, Window] = field(default_factory=dict)  # windows that the user has set
    slots: int = SLOTS  # of the running batch
    full: int = 0  # rows of a full batch, if memory holds fewer than the slots; 0: slots

    @property
    def windows(self) -> dict[str, Window]:
        """The window of each lane, by name."""
        default = windows_from_budgets(self.lanes)
        return {name: Window(high) for name, high in default.items()} | dict(self.stated)

    @property
    def timed_windows(self) -> dict[str, Window]:
        """The windows of the lanes that have a limit or a window of their own."""
        return {
            name: window
            for name, window in self.windows.items()
            if name in self.stated or window.high != OFFLINE_WINDOW
        }

    @property
    def window(self) -> Window:
        """One window for all endpoints: that of the endpoint that can wait the longest, of those
        with a TTFT limit or a window of their own.

        Teams that want full batches choose this. Ties go to a fixed window, then to the one with
        the higher lower end.
        """
        first = {each.name for each in self.lanes if each.budget.ttft != NEVER} | set(self.stated)
        timed = self.timed_windows or self.windows
        mine = [window for name, window in timed.items() if name in first]
        return max(mine or timed.values(), key=lambda each: (each.high, each.low))

    @property
    def bounds(self) -> tuple[int, ...]:
        """The bounds of three length classes with equally many prompts."""
        count = len(self.prompts)
        return tuple(sorted({self.prompts[count * k // 3] for k in (1, 2)} if count else ()))

    @property
    def together(self) -> int:
        """The number of members of a group."""
        return min(SLOTS, self.slots)

    @property
    def chunk(self) -> int:
        """Prompt tokens that fit into a step with a full batch, inside the tightest budget."""
        return chunk_within_budgets(self.lanes, self.token_cost, self.full or self.slots)

    def group(self, name: str, rule: str, join: Join) -> Strategy:
        """A strategy that forms groups by this join policy and computes prompts whole and first."""
        policies = Policies(
            join=join, mix=PrefillFirst(), chunk=Whole(), step_tokens=self.together * self.context
        )
        return Strategy(name, rule, policies)
