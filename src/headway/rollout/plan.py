"""How a trial is run (TrialPlan), and the limits that end it at once (HardStop)."""

from dataclasses import dataclass

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.rollout.guardrail import EVERYWHERE, Guardrail
from headway.rollout.switchback import SECOND


@dataclass(frozen=True, slots=True)
class HardStop:
    """Absolute limits on the candidate's requests of the latest seconds. They need no statistics:
    beyond them something is clearly broken."""

    failing: float = 0.5  # share of requests that were refused, expired or failed
    fewest: int = 20  # refused or ended requests below which the share says nothing
    within: int = 10 * SECOND  # nanoseconds over which the share is taken
    wait: int = NEVER  # nanoseconds that the first in a line may wait under the candidate

    def __post_init__(self) -> None:
        if not 0 < self.failing <= 1 or self.fewest < 1:
            raise SettingError("rollback: failing is a share above 0, of 1 request or more")
        if not 0 < self.within < NEVER:
            raise SettingError("rollback: within is a time above 0, and has an end")


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Everything that is decided before a trial begins. Times in nanoseconds."""

    slice: int = 6 * SECOND
    wash_out: int = 3 * SECOND // 2
    longest: int = 1_800 * SECOND  # after this the candidate goes; it ends `settle` later
    settle: int = 60 * SECOND  # time for a pair's requests to end before the pair is judged
    learning: int = 8  # pairs that only teach the traffic, before any pair counts
    fewest: int = 10  # counted pairs before a guardrail can trip
    alpha: float = 0.05  # probability of a false alarm, over all guardrails together
    seed: int = 0  # draws the order of the versions
    engines: int = 1  # 2: they share the traffic, with one version on each
    guardrails: tuple[Guardrail, ...] = EVERYWHERE
    stop: HardStop = HardStop()

    def __post_init__(self) -> None:
        if not 0 <= self.wash_out < self.slice:
            raise SettingError("a slice must be longer than its wash-out")
        if 2 * self.slice > self.longest:
            pair, longest = 2 * self.slice / SECOND, self.longest / SECOND
            raise SettingError(
                f"longest is {longest:g} s, and a trial has one pair of slices at least: {pair:g} s"
            )
        if self.settle == NEVER:
            raise SettingError("settle has an end: no pair would ever be judged")
        if self.engines not in (1, 2):
            raise SettingError(f"two engines are compared, not {self.engines}")
        if not 0 < self.alpha < 1:
            raise SettingError(f"alpha is a probability between 0 and 1, not {self.alpha}")
        if not self.guardrails:
            raise SettingError("a trial has one guardrail at least")
