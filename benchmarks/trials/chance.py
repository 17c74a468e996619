"""What chance alone makes of so many trials."""

from collections.abc import Callable
from math import comb

ALPHA = 0.05


def at_most(most: int, count: int, share: float) -> float:
    """The probability of so many or fewer of `count`, if each has this probability."""
    terms = (comb(count, n) * share**n * (1 - share) ** (count - n) for n in range(most + 1))
    return sum(terms)


def binomial_bound(count: int, share: float = ALPHA) -> int:
    """The most false alarms of so many trials that still have a probability above ALPHA, if each
    trial has this probability."""
    most = 0
    while 1 - at_most(most, count, share) > ALPHA:
        most += 1
    return most


def exact_interval(found: int, count: int) -> tuple[float, float]:
    """A share's 95 % interval, of independent trials (Clopper and Pearson, Biometrika, 1934)."""

    def edge(is_beyond: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if is_beyond(middle) else (middle, high)
        return low

    low = edge(lambda share: 1 - at_most(found - 1, count, share) > 0.025) if found else 0.0
    high = edge(lambda share: at_most(found, count, share) < 0.025) if found < count else 1.0
    return low, high


def told(name: str, found: int, count: int) -> str:
    """A share with its interval, in a line."""
    low, high = exact_interval(found, count)
    return f"{name}: {found} of {count}, 95 % (exact): {low:.3f} to {high:.3f}"
