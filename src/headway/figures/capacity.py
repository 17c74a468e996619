"""The highest rate at which every endpoint keeps its budget, found by bisection.

Every rate offers the same requests, only faster or slower, both in a simulation and on a machine.
So the rate is all that differs between two runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from headway.errors import SettingError

REQUIRED_ATTAINMENT = 0.95  # share of the offered requests that must be good, in every lane
TOLERANCE = 0.02  # gap between the highest kept and the lowest broken rate, as a share of the first

ServeAtRate = Callable[
    [float], Mapping[str, float]
]  # attainment by lane; lanes without requests are left out


@dataclass(frozen=True, slots=True)
class TriedRate:
    """The attainment at one rate."""

    rate: float
    attainment: Mapping[str, float]  # by lane
    share: float = REQUIRED_ATTAINMENT

    @property
    def least(self) -> float:
        return min(self.attainment.values(), default=0.0)

    @property
    def kept(self) -> bool:
        return self.least >= self.share

    @property
    def has_requests(self) -> bool:
        """Whether requests were left after the warm-up. If not, the rate is not kept or broken."""
        return bool(self.attainment)

    @property
    def broken(self) -> bool:
        return self.has_requests and not self.kept


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest request rate that kept the target, and every rate that was tried."""

    rate: float  # the highest kept rate; 0: none was kept
    bracket: tuple[float, float]  # that rate, and the lowest broken one above; infinite: none broke
    tried: tuple[TriedRate, ...]  # in the order tried

    @property
    def is_bounded(self) -> bool:
        """Whether a higher rate was tried and broken."""
        return self.bracket[1] < inf

    @property
    def skipped(self) -> tuple[float, ...]:
        """Broken rates below the capacity, ascending. They occur where groups fill slowly."""
        broken = [each.rate for each in self.tried if each.broken]
        return tuple(sorted(rate for rate in broken if rate < self.rate))


def search_capacity(
    serve: ServeAtRate,
    low: float,
    high: float,
    tolerance: float = TOLERANCE,
    known: Sequence[TriedRate] = (),
    share: float = REQUIRED_ATTAINMENT,
) -> Capacity:
    """Search the capacity between low and high: double from low until a rate breaks, then bisect.

    high: the highest rate to try. known: rates tried before, which bound the search. If none of
    them was kept, the search begins below them. If low itself breaks, the search goes up as long as
    attainment does not fall, because groups fill faster at higher rates. A rate without requests
    after the warm-up bounds nothing.
    Raises SettingError unless 0 < low <= high.
    """
    if not 0 < low <= high < inf:
        raise SettingError(f"a capacity is looked for between two rates, not {low:g} and {high:g}")
    search = _Search(serve, share, [each for each in known if each.has_requests])
    search.climb(low, high)
    while search.top > 0 and search.broken < inf:
        if search.broken - search.top <= tolerance * search.top:
            break
        search.keeps((search.top + search.broken) / 2)
        if not search.tried[-1].has_requests:  # too few requests to narrow the bracket further
            break
    return Capacity(search.top, (search.top, search.broken), tuple(search.tried))


@dataclass(slots=True)
class _Search:
    serve: ServeAtRate
    share: float
    tried: list[TriedRate]

    @property
    def top(self) -> float:
        """The highest kept rate."""
        return max((each.rate for each in self.tried if each.kept), default=0.0)

    @property
    def broken(self) -> float:
        """The lowest broken rate above the highest kept one."""
        top = self.top
        return min((t.rate for t in self.tried if t.broken and t.rate > top), default=inf)

    def keeps(self, rate: float) -> bool:
        self.tried.append(TriedRate(rate, self.serve(rate), self.share))
        return self.tried[-1].kept

    def climb(self, low: float, high: float) -> None:
        """Try rates until a kept rate lies below a broken one, or until none can."""
        known = sorted(self.tried, key=lambda each: each.rate)
        if self.top == 0:
            self._rise(low, 0.0, min(known[0].rate, high) if known else high, bool(known))
        if self.top == 0 and known and known[-1].rate < high:
            self._rise(min(2 * known[-1].rate, high), known[-1].least, high)
        rate = self.top
        while self.broken == inf and 0 < rate < high:
            rate = min(2 * rate, high)
            self.keeps(rate)

    def _rise(self, rate: float, before: float, end: float, apart: bool = False) -> None:
        """Double the rate until it is kept, until its attainment falls, or until the end.

        before: the best attainment so far (of a rate's worst lane). apart: do not try the end.
        """
        while rate < end or (rate == end and not apart):
            kept, tried = self.keeps(rate), self.tried[-1]
            if kept or rate == end or (tried.has_requests and tried.least < before):
                return
            rate, before = min(2 * rate, end), max(before, tried.least)
