"""An LLM as a stage in virtual time (SimulatedLLM): its steps take what a cost.json says."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from headway.core.cost.features import row_features
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.policies.policies import usual
from headway.core.request import NEVER
from headway.core.settings import Settings
from headway.errors import SettingError
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor

BLOCK = 16  # tokens of a KV block


@dataclass(frozen=True, slots=True)
class SimulatedLLM:
    """An LLM as a stage. Lengths are in tokens; those of a prompt and an answer are drawn from the
    given ones, equally likely.

    Requests are batched continuously, by the strategy and the scheduler of a live LLM.
    """

    name: str
    cost: StepCost = field(repr=False)  # cost of its steps
    prompts: tuple[int, ...]
    answers: tuple[int, ...]
    slots: int = 32  # requests that run at once
    largest: int = 0  # slots that `tune` may try, at most; 0: slots
    kv_tokens: int = 0  # tokens that its KV memory holds; 0: enough for all slots
    widths: tuple[int, ...] = (1,)  # elements of its result, equally likely, where each() follows
    file: str = ""  # where the cost is from

    def __post_init__(self) -> None:
        if not self.cost.is_known:
            raise SettingError(f"stage {self.name!r}: its steps have no cost")
        if not (self.prompts and self.answers) or min(*self.prompts, *self.answers) < 1:
            raise SettingError(f"stage {self.name!r}: prompts and answers have a token or more")
        if self.slots < 1 or not self.widths or min(self.widths) < 0:
            raise SettingError(f"stage {self.name!r}: slots from 1, widths from 0")
        if 0 < self.kv_tokens < self._longest:
            raise SettingError(
                f"stage {self.name!r}: a request of {self._longest} tokens never fits into "
                f"kv_tokens {self.kv_tokens}"
            )

    @property
    def _longest(self) -> int:
        return max(self.prompts) + max(self.answers)

    # -- what a stage of either kind says

    @property
    def calls(self) -> bool:
        """False: its requests come and go by themselves."""
        return False

    @property
    def size(self) -> int:
        return self.slots

    @property
    def most(self) -> int:
        return self.largest or self.slots

    @property
    def window(self) -> float:
        return 0.0

    @property
    def processes(self) -> int:
        """1: its engine cannot be divided."""
        return 1

    @property
    def least_seconds(self) -> float:
        """Seconds of a request: its prompt joins a step, and `most` requests decode at once."""
        prompt, answer = _mean(self.prompts), _mean(self.answers)
        step = row = row_features(round(prompt + answer / 2), 1, 1)
        for _ in range(self.most - 1):
            step += row
        decoding = self.cost.predict(step)
        joined = self.cost.predict(step + row_features(0, round(prompt), 1))
        return (decoding / self.most * answer + joined - decoding) / 1e9

    def sized(self, size: int, window: float, processes: int) -> "SimulatedLLM":
        """The same LLM with `size` slots."""
        return replace(self, slots=size, largest=self.most)

    def for_engine(self) -> Settings:
        """The settings of a live LLM with as many slots."""
        longest = -(-self._longest // BLOCK) + 1
        blocks = self.kv_tokens // BLOCK + 1 if self.kv_tokens else longest * self.slots + 1
        lanes = (Lane(max_waiting=NEVER),)
        return Settings(max(blocks, longest + 1), BLOCK, lanes, usual(self.slots))

    def executor(self, clock: VirtualClock, seed: int | None) -> PricedExecutor:
        """The executor that prices its steps. seed: of residuals; None: each takes its price."""
        return PricedExecutor(self.cost, clock, seed=seed)

    def ask(self, number: int, draw: Callable[[], Random]) -> tuple[tuple[int, ...], int]:
        """A prompt that shares nothing with other prompts, and the tokens of its answer."""
        drawn = draw()
        return (number,) * drawn.choice(self.prompts), drawn.choice(self.answers)


def _mean(lengths: tuple[int, ...]) -> float:
    return sum(lengths) / len(lengths)
