"""What a trial knows of a guardrail (Evidence), and how the trial has ended (Verdict)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, isfinite
from statistics import median
from typing import Any

from headway.rollout.betting import effect_interval
from headway.rollout.guardrail import RATIOS
from headway.rollout.watch import Watch

MOST_LOG = 700.0  # beyond it, exp overflows


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a trial knows of one guardrail in one lane. A change of 0.2 means 20 % more or, for a
    share, 20 points more."""

    figure: str
    lane: str
    e_value: float
    needed: float  # e-value at which it trips
    gain: float  # e-value against "the candidate is no better"
    pairs: int  # pairs of slices that counted
    change: float | None  # the median of the pairs' changes; None: there is none
    low: float | None  # end of the interval that is valid at any time; None: not bounded yet
    high: float | None

    @classmethod
    def of(cls, watch: Watch, needed: float, alpha: float) -> "Evidence":
        """The evidence of a watch. needed: the logarithm of the e-value at which it trips."""
        found = watch.differences
        is_ratio = watch.guardrail.figure in RATIOS
        low, high = effect_interval(found, alpha, watch.spreads)
        return cls(
            watch.guardrail.figure,
            watch.lane,
            exp(min(watch.evidence, MOST_LOG)),
            exp(needed),
            exp(min(watch.gain, MOST_LOG)),
            watch.pairs,
            change_of(median(found), is_ratio) if found else None,
            change_of(low, is_ratio),
            change_of(high, is_ratio),
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def change_of(difference: float, is_ratio: bool) -> float | None:
    """A difference as a relative change or, for a share, in points. None: it is not finite."""
    if not isfinite(difference):
        return None
    return exp(min(difference, MOST_LOG)) - 1 if is_ratio else difference


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a trial. It holds no evidence while the trial runs."""

    outcome: str
    why: str = ""
    pairs: int = 0
    evidence: Sequence[Evidence] = ()

    def as_json(self) -> dict[str, Any]:
        told = {"outcome": str(self.outcome), "why": self.why, "pairs": self.pairs}
        return told | {"evidence": [each.as_json() for each in self.evidence]}
