"""A stage whose calls take priced time (SimulatedStage), and its price (CallPrice)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from random import Random
from statistics import NormalDist

from headway.batching.settings import BatchSettings
from headway.core.cost.features import Features
from headway.core.cost.step_cost import WHOLE, Rates, Residuals, StepCost
from headway.core.settings import Settings
from headway.errors import SettingError
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor

QUANTILES = 41  # of the residuals of calls
UNBOUNDED = 2**62  # lines are bounded at the pipeline's door


@dataclass(frozen=True, slots=True)
class SimulatedStage:
    """A stage of priced calls. Times are in seconds. A call of n items takes base + per_item x n.
    With several processes it takes base + per_item x the largest share."""

    name: str
    base: float  # of a call
    per_item: float  # of each item in the call
    size: int = 32  # items of a call, at most; with several processes, items of each one's share
    window: float = 0.0  # time that an item may wait for others
    processes: int = 1
    largest: int = 0  # items of a call up to which the price is known; 0: size
    cv: float = 0.0  # standard deviation of a call's time over its mean (log-normal)
    widths: tuple[int, ...] = (1,)  # elements of its result, equally likely, where each() follows
    slowed: tuple[tuple[float, float], ...] = ()  # (from when, by what factor), ascending

    def __post_init__(self) -> None:
        if min(self.base, self.per_item, self.cv) < 0 or self.base + self.per_item <= 0:
            raise SettingError(f"stage {self.name!r}: base, per_item and cv cannot be so")
        if self.processes < 1 or not self.widths or min(self.widths) < 0:
            raise SettingError(f"stage {self.name!r}: processes from 1, widths from 0")
        if any(factor <= 0 for _, factor in self.slowed):
            raise SettingError(f"stage {self.name!r}: a call cannot take 0 times so long")

    @property
    def most(self) -> int:
        """The largest size that may be tried, in items of a call."""
        return self.largest or self.size

    @property
    def calls(self) -> bool:
        """True: its items share calls."""
        return True

    @property
    def least_seconds(self) -> float:
        """Seconds of an item in the largest calls that may be tried."""
        return self.base / self.most + self.per_item

    def sized(self, size: int, window: float, processes: int) -> "SimulatedStage":
        """The same stage with these settings."""
        return replace(self, size=size, window=window, processes=processes, largest=self.most)

    def for_engine(self) -> Settings:
        """The settings that a live stage would have."""
        return BatchSettings(
            size=self.size,
            window=self.window,
            max_waiting=UNBOUNDED,
            processes=self.processes if self.processes > 1 else 0,
        ).for_engine()

    def ask(self, number: int, draw: Callable[[], Random]) -> tuple[tuple[int, ...], int]:
        """What an item's request holds: its prompt, and the length of its answer."""
        return (number,), 0

    @property
    def price(self) -> "CallPrice":
        """The price of a call."""
        base, each = round(self.base * 1e12), round(self.per_item * 1e12)
        spread = log(1 + self.cv**2)
        shares = [(place + 0.5) / QUANTILES for place in range(QUANTILES)]
        normals = [NormalDist().inv_cdf(share) for share in shares]
        factors = [exp(normal * sqrt(spread) - spread / 2) for normal in normals]
        residuals = Residuals(tuple([round(WHOLE * factor) for factor in factors]))
        known = (residuals, residuals) if self.cv else (Residuals(), Residuals())
        return CallPrice(Rates(base), ((0, each),), residuals=known, processes=self.processes)

    def executor(self, clock: VirtualClock, seed: int | None) -> PricedExecutor:
        """The executor that prices its calls. seed: of residuals; None: each takes its price."""
        return _SlowedExecutor(self, clock, seed)


@dataclass(frozen=True, slots=True)
class CallPrice(StepCost):
    """The price of a call that processes share."""

    processes: int = 1

    def _tokens(self, tokens: int) -> int:
        return StepCost._tokens(self, -(-tokens // self.processes))


class _SlowedExecutor(PricedExecutor):
    def __init__(self, stage: SimulatedStage, clock: VirtualClock, seed: int | None) -> None:
        super().__init__(stage.price, clock, seed=seed)
        self._slowed = stage.slowed

    def factor(self, features: Features) -> int:
        now, factor = self.clock.now(), 1.0
        for since, times in self._slowed:
            if now >= since * 1e9:
                factor = times
        return round(super().factor(features) * factor)
