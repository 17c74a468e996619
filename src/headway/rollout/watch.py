"""One guardrail of one lane while a trial runs (Watch): pairs of slices become evidence."""

from collections.abc import Iterable, Sequence
from math import inf, log, sqrt
from statistics import median

from headway.rollout.betting import BOLDNESS, EFFECTS, Bets, mean_of_logs
from headway.rollout.control import Expected
from headway.rollout.guardrail import FIGURES, TAILS, Guardrail, Seen

FEWEST = 3  # requests in a slice at which its mean counts half
TAIL = 0.5  # share of the requests that have the longest expected waits
BEYOND = 0.95  # share of all waits that are shorter than the wait to exceed
# Values that p95 is taken of, the latest: sorting them takes milliseconds at each pair, and p95 of
# so many is sure to 0.2 points of its rank.
LATEST = 10_000
SCORED = 5  # pairs after which their scatter rescales the predicted spreads
LEAST_SCALE = 0.3
HALF = 0.5  # good requests added to both halves of a pair: one without any has a finite cost
NORMAL = 0.6745  # median of a normal variable's absolute deviation, in standard deviations


class Watch:
    """The evidence on one guardrail in one lane.

    A percentile is watched in two ways. The mean of both e-values is an e-value, too:

    * How much later than usual the requests with the longest expected waits came (means of
      logarithms, less the usual). The usual is known to 2 % at some expected waits, to a factor
      of 3 at others. Requests and pairs are weighted by that.
    * How many waits exceeded the lane's p95 of the LATEST waits so far, of either version.

    The other figures are means: of a share, or of the device time per good request.
    """

    def __init__(self, guardrail: Guardrail, lane: str) -> None:
        self.guardrail, self.lane = guardrail, lane
        self._read, self.weight = FIGURES[guardrail.figure]
        self.is_tail = guardrail.figure in TAILS
        self._expected, self._exceeds = Expected(), Expected()
        sizes = EFFECTS if self.is_tail else BOLDNESS
        self._bets = [Bets(guardrail.shift, sizes)]
        if self.is_tail and not guardrail.allowed:  # how many exceed at a ratio is unknown
            self._bets.append(Bets())
        self._gains = Bets(sizes=sizes)  # against "the candidate is no better"
        self.pairs = 0  # pairs that counted
        self.differences: list[float] = []  # of the pairs with requests on both sides
        self.spreads: list[float] = []  # of these differences; only for a percentile
        self._scores: list[float] = []  # of all pairs: the difference over its predicted spread
        self._values: list[float] = []  # the latest, in the order in which they were learnt
        self._beyond = 0.0  # the wait to exceed

    @property
    def evidence(self) -> float:
        """The logarithm of the e-value."""
        return mean_of_logs([each.evidence for each in self._bets])

    @property
    def gain(self) -> float:
        """The logarithm of the e-value against "the candidate is no better"."""
        return self._gains.evidence

    def start_over(self, past: Iterable[Seen]) -> None:
        """Learn again from past requests, because their expected waits have changed."""
        self._expected, self._exceeds, self._values = Expected(), Expected(), []
        self.learn(past)

    def learn(self, seen: Iterable[Seen]) -> None:
        """Learn what is usual from requests of both versions."""
        known = [(each, value) for each in seen if (value := self._read(each)) is not None]
        if self.guardrail.figure == "cost_per_good":
            return
        for each, value in known:
            self._expected.learn(each.expected, value)
        if self.is_tail and known:
            self._values = [*self._values, *[value for _, value in known]][-LATEST:]
            self._beyond = sorted(self._values)[int(len(self._values) * BEYOND)]
            for each, value in known:
                self._exceeds.learn(each.expected, float(value > self._beyond))

    def see(self, control: Sequence[Seen], candidate: Sequence[Seen]) -> None:
        """Judge a pair of slices. Its requests must have been learnt before."""
        if self.guardrail.figure == "cost_per_good":
            costs = _cost_per_good(control), _cost_per_good(candidate)
            if min(costs) > 0:
                difference = log(costs[1] / costs[0])
                self._see(difference, [difference])
            return
        pair = [
            [(each, value) for each in half if (value := self._read(each)) is not None]
            for half in (control, candidate)
        ]
        if not any(pair):
            return
        if self.is_tail:
            longest = self._expected.top(TAIL)
            missed = [
                [
                    float(value > self._beyond) - self._exceeds.at(each.expected)
                    for each, value in half
                ]
                for half in pair
            ]
            for place in range(1, len(self._bets)):
                self._bets[place].see(_shrunk(missed[1]) - _shrunk(missed[0]))
            tails = [[(e, v) for e, v in half if e.expected >= longest] for half in pair]
            if any(tails):
                self._see_tails(*[self._weighed(half) for half in tails])
            return
        rest = [[value - self._expected.at(each.expected) for each, value in h] for h in pair]
        complete = [_mean(rest[1]) - _mean(rest[0])] if all(rest) else []
        self._see(_shrunk(rest[1]) - _shrunk(rest[0]), complete)

    def _weighed(self, half: Sequence[tuple[Seen, float]]) -> tuple[float, float]:
        """How much later than usual a half came, and the variance; infinite without requests. Each
        request is weighted by its inverse variance. Requests of a slice move together, so the
        variance of their mean is taken to be the smallest of theirs."""
        expected = self._expected
        rest = [(v - expected.at(e.expected), expected.variance(e.expected)) for e, v in half]
        weight = sum([1 / variance for _, variance in rest])
        mean = sum([value / variance for value, variance in rest]) / weight if rest else 0.0
        return mean, min([variance for _, variance in rest], default=inf)

    def _see_tails(self, control: tuple[float, float], candidate: tuple[float, float]) -> None:
        """Bet on the tails. A half without requests is taken to be as usual, and as sure as the
        other half. Only earlier pairs scale the spread, so exchanging the versions leaves it the
        same."""
        variances = control[1], candidate[1]
        is_complete = max(variances) < inf
        variance = sum(variances) if is_complete else 2 * min(variances)
        difference, spread = candidate[0] - control[0], sqrt(variance)
        score = difference / spread
        spread *= self._scale
        self._scores.append(score)
        if is_complete:
            self.spreads.append(spread)
        self._see(difference, [difference] if is_complete else [], spread)

    @property
    def _scale(self) -> float:
        """The spread of earlier pairs over their predicted spread. A shift of all pairs does not
        change it."""
        if len(self._scores) < SCORED:
            return 1.0
        middle = median(self._scores)
        return max(LEAST_SCALE, median([abs(each - middle) for each in self._scores]) / NORMAL)

    def _see(self, difference: float, complete: list[float], spread: float = 0.0) -> None:
        """Bet on a pair's difference. complete: the difference of the means, if both halves had
        requests; else empty."""
        self.pairs += 1
        self._bets[0].see(difference, spread)
        self._gains.see(-difference, spread)
        self.differences += complete


def _shrunk(rest: Sequence[float]) -> float:
    """The mean, shrunk towards 0 (the usual) where there are few requests; 0 without any. It does
    not depend on the version, so the pair's difference keeps its fair sign."""
    return sum(rest) / (len(rest) + FEWEST)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _cost_per_good(half: Sequence[Seen]) -> float:
    """Nanoseconds of device time per good request; 0: nothing was computed. HALF is added whatever
    the version, so the pair's difference keeps its fair sign."""
    rows = [each.row for each in half if each.row]
    return sum([row.nanoseconds for row in rows]) / (sum([row.good for row in rows]) + HALF)
