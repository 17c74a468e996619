"""What the traffic alone would have done to a request (VirtualQueue, Expected).

Bursts move the waits of a slice ten times as far as most changes of a configuration. The arrivals
explain most of that, and no version changes the arrivals: a server that computes a fixed number of
prompt tokens a second would have had this backlog when the request came. Subtracting the usual
figure at that backlog is CUPED (Deng et al., WSDM 2013) with a covariate of the arrivals.

Nothing here knows which version was in force, so a pair's difference keeps its fair sign.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import log, sqrt

STEP = 0.15  # width of a bin, in units of the logarithm of the expected wait
SHORTEST = 1e-3  # seconds added to each expected wait: far shorter waits look alike
RATIOS = [1.1**place for place in range(-6, 18)]  # times the mean rate of arrivals: 0.56 to 5.05
FINE = (0.96, 0.98, 1.02, 1.04)
FEW = 10  # values in a bin at which its own variance counts half
LEAST = 1e-4  # least variance: no figure is known better than to 1 %


class VirtualQueue:
    """A queue of prompt tokens for each engine; all engines drain at the same rate.
    Arrivals must come in order of time."""

    def __init__(self, rate: float) -> None:
        self.rate = rate  # tokens a second
        self._queues: dict[int, tuple[float, int]] = {}  # by engine: tokens left, and when

    def arrive(self, at: int, tokens: int, engine: int = 0) -> float:
        """Queue a request. Returns the logarithm of the seconds (plus SHORTEST) until its prompt
        would be computed."""
        left, since = self._queues.get(engine, (0.0, at))
        left -= self.rate * (at - since) / 1e9
        left = (left if left > 0 else 0.0) + tokens
        self._queues[engine] = left, at
        return log(left / self.rate + SHORTEST)


def best_rate(
    arrivals: Sequence[tuple[int, int, int]], waits: Sequence[Sequence[tuple[int, float]]]
) -> float:
    """The rate whose expected waits correlate best with the measured waits, both as logarithms.

    arrivals: nanoseconds, prompt tokens and engine, in order of time. waits: for each lane, the
    index of each arrival and the logarithm of its wait.
    """
    seconds = (arrivals[-1][0] - arrivals[0][0]) / 1e9 or 1.0
    engines = len({engine for *_, engine in arrivals})
    mean = sum([tokens for _, tokens, _ in arrivals]) / seconds / engines

    def fit(rate: float) -> float:
        queue = VirtualQueue(rate)
        expected = [queue.arrive(*each) for each in arrivals]
        fits = [_correlation([(expected[at], wait) for at, wait in lane]) for lane in waits]
        return sum(fits)

    best = max([mean * ratio for ratio in RATIOS], key=fit)
    return max([best, *[best * ratio for ratio in FINE]], key=fit)


def _correlation(pairs: Sequence[tuple[float, float]]) -> float:
    if len(pairs) < 3:
        return 0.0
    mean_x, mean_y = (sum(each) / len(pairs) for each in zip(*pairs, strict=True))
    xy = sum([(x - mean_x) * (y - mean_y) for x, y in pairs])
    xx = sum([(x - mean_x) ** 2 for x, _ in pairs])
    yy = sum([(y - mean_y) ** 2 for _, y in pairs])
    return xy / sqrt(xx * yy) if xx > 0 and yy > 0 else 0.0


class Expected:
    """The mean and the variance of a figure at each expected wait. The mean is linear between the
    means of the bins."""

    def __init__(self) -> None:
        self._bins: dict[int, tuple[int, float, float]] = {}  # count, sums of waits and of values
        self._squares: dict[int, float] = {}  # of the deviations from each bin's mean
        self._count, self._all_squares = 0, 0.0  # of all bins
        self._line: list[tuple[float, float]] = []  # means of the bins; empty: out of date

    def learn(self, wait: float, value: float) -> None:
        """Add a request: its expected wait (a logarithm) and its figure."""
        place = int(wait // STEP)
        count, waits, values = self._bins.get(place, (0, 0.0, 0.0))
        if count:
            square = (value - values / count) ** 2 * count / (count + 1)
            self._squares[place] = self._squares.get(place, 0.0) + square
            self._all_squares += square
        self._count += 1
        self._bins[place] = count + 1, waits + wait, values + value
        self._line = []

    def at(self, wait: float) -> float:
        """The usual figure at this expected wait."""
        if not self._line:
            bins = self._bins.values()
            self._line = sorted((waits / n, values / n) for n, waits, values in bins)
        line = self._line
        if len(line) == 1:
            return line[0][1]
        place = min(max(1, bisect_left(line, (wait, 0.0))), len(line) - 1)
        (x, y), (to_x, to_y) = line[place - 1], line[place]
        return y + (to_y - y) * min(1.0, max(0.0, (wait - x) / (to_x - x)))

    def variance(self, wait: float) -> float:
        """The figure's variance at this wait, shrunk towards that of all waits if few were seen."""
        count = self._bins.get(place := int(wait // STEP), (0, 0.0, 0.0))[0]
        squares = self._squares.get(place, 0.0) + FEW * self._all_squares / self._count
        return max(LEAST, squares / (count + FEW))

    def top(self, share: float) -> float:
        """The lower edge of the bin in which the longest `share` of expected waits begins."""
        ordered = sorted(self._bins.items())
        counts = list(accumulate([each[1][0] for each in ordered]))
        return ordered[bisect_left(counts, counts[-1] * (1 - share))][0] * STEP
