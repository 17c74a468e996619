"""Evidence that may be looked at at any time (Bets): a fair coin for each pair of slices."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, inf, log, log1p, tanh
from statistics import median

# Bet sizes, for effects from several units down to about a tenth. Evidence averages over all
# sizes, so none has to be chosen.
BOLDNESS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
# Where the spread of the differences is known: the effects to bet on, in the same unit.
EFFECTS = (0.1, 0.2, 0.4, 1.6)
CLOSEST = 1e-9  # least factor by which one bet multiplies the capital


@dataclass(slots=True)
class Bets:
    """An e-process against "the candidate is no worse than it may be".

    A fair coin drew the order of the two versions in each pair of slices. So if versions make no
    difference, a pair's difference X is as likely as -X, whatever the traffic did and however much
    neighbouring pairs resemble each other. A bet of `b` on a positive sign multiplies the capital
    by 1 + tanh(b X). The bet is fair by symmetry, with any tails. The probability that the capital
    ever reaches 1 / alpha is at most alpha, so one may look at any time (Ville 1939).

    Source: betting on symmetric differences as in de la Pena, Annals of Probability, 1999, and
    Ramdas, Ruf, Larsson and Koolen, 2020, arXiv:2009.03167; capital averaged over bets as in
    Waudby-Smith and Ramdas, JRSS B, 2024. exp(bX) / cosh(bX) = 1 + tanh(bX) is their exact form.

    If a pair's spread s is known, the bet is on an effect d. Its size is b = d / s^2, which grows
    fastest if X is normal with mean d and standard deviation s. X is clipped to [-s, s], because
    real tails are heavier. The spread may depend on earlier pairs, and on this pair if exchanging
    the versions leaves it the same. A wrong spread costs power, never validity.

    allowed: how much worse the candidate may be, in X's unit. The bets are on X - allowed.
    """

    allowed: float = 0.0
    sizes: tuple[float, ...] = BOLDNESS
    logs: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.logs = [0.0] * len(self.sizes)

    def see(self, difference: float, spread: float = 0.0) -> None:
        """Bet on a pair's difference: the candidate's figure less the control's; positive is worse.
        spread: its standard deviation if the versions do not differ; 0: not known."""
        gap = difference - self.allowed
        if spread:
            gap = min(spread, max(-spread, gap)) / spread**2
        for place, size in enumerate(self.sizes):
            self.logs[place] += log1p(max(tanh(size * gap), CLOSEST - 1))

    @property
    def evidence(self) -> float:
        """The natural logarithm of the e-value; 0: no evidence."""
        return mean_of_logs(self.logs)


def mean_of_logs(logs: Sequence[float]) -> float:
    """The logarithm of the mean of numbers with these logarithms."""
    top = max(logs)
    return top + log(sum([exp(each - top) for each in logs]) / len(logs))


def effect_interval(
    differences: Sequence[float], alpha: float, spreads: Sequence[float] = ()
) -> tuple[float, float]:
    """The common shifts of the differences that the bets do not exclude: a confidence sequence,
    valid at any time. (-inf, inf) while nothing is excluded.

    spreads: one for each difference; empty: not known.
    """
    if not differences:
        return -inf, inf
    needed = log(2 / alpha)
    ordered = sorted(differences)
    spread = ordered[-1] - ordered[0] or 1.0

    def excluded(shift: float, sign: int) -> bool:
        return _evidence([sign * (each - shift) for each in differences], spreads) >= needed

    def edge(sign: int) -> float:
        """Bisect for where exclusion ends, from the far side inwards. sign: 1 for the lower end."""
        inside = median(ordered)
        outside = (ordered[0] if sign > 0 else ordered[-1]) - sign * spread
        if not excluded(outside, sign) or excluded(inside, sign):
            return -sign * inf
        for _ in range(16):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if excluded(middle, sign) else (middle, outside)
        return inside

    return edge(1), edge(-1)


def _evidence(differences: Sequence[float], spreads: Sequence[float]) -> float:
    bets = Bets(sizes=EFFECTS if spreads else BOLDNESS)
    for each, spread in zip(differences, spreads or [0.0] * len(differences), strict=True):
        bets.see(each, spread)
    return bets.evidence
