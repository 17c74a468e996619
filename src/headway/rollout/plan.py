"""How a trial is run (TrialPlan), and the limits that end it at once (HardStop)."""

from dataclasses import dataclass

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.rollout.guardrail import EVERYWHERE, Guardrail
from headway.rollout.switchback import SECOND


@dataclass(frozen=True, slots=True)
class HardStop:
    """Absolute limits, for the candidate's requests of the latest seconds. No statistics: they are
    set where nobody doubts that something is broken."""

    failing: float = 0.5  # share that was refused, expired or failed
    fewest: int = 20  # requests that have ended, below which the share says nothing
    within: int = 10 * SECOND  # nanoseconds
    wait: int = NEVER  # nanoseconds that the first in a line may have waited under the candidate

    def __post_init__(self) -> None:
        if not 0 < self.failing <= 1 or self.fewest < 1:
            raise SettingError("rollback: failing is a share above 0, of 1 request or more")


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Everything that is decided before a trial begins. Times in nanoseconds."""

    slice: int = 6 * SECOND
    wash_out: int = 3 * SECOND // 2
    longest: int = 1_800 * SECOND  # then it ends, whatever is known
    settle: int = 60 * SECOND  # after a pair, for its requests to end: who has not says nothing
    learning: int = 8  # pairs from which the traffic is learnt before any counts
    fewest: int = 10  # pairs that count, before a guardrail can trip
    alpha: float = 0.05  # probability of a false alarm, of all guardrails together
    seed: int = 0  # of the order of the versions
    engines: int = 1  # 2: they share the traffic, and each version is on one of them
    guardrails: tuple[Guardrail, ...] = EVERYWHERE
    stop: HardStop = HardStop()

    def __post_init__(self) -> None:
        if not 0 <= self.wash_out < self.slice:
            raise SettingError("a slice must be longer than its wash-out")
        if 2 * self.slice > self.longest:
            raise SettingError("a trial has one pair of slices at least")
        if self.engines not in (1, 2):
            raise SettingError(f"two engines are compared, not {self.engines}")
        if not 0 < self.alpha < 1:
            raise SettingError(f"alpha is a probability between 0 and 1, not {self.alpha}")
        if not self.guardrails:
            raise SettingError("a trial has one guardrail at least")
