"""One guardrail of one lane while a trial runs (Watch): pairs of slices become evidence."""

from collections.abc import Iterable, Sequence
from math import log

from headway.rollout.betting import Bets, mean_of_logs
from headway.rollout.control import Expected
from headway.rollout.guardrail import FIGURES, TAILS, Guardrail, Seen

FEWEST = 3  # requests of a slice, with which its mean counts half
TAIL = 0.5  # share of the requests with the longest expected waits
BEYOND = 0.95  # of all waits are shorter than the one that is to be exceeded


class Watch:
    """A percentile is watched in two ways, and the evidence is their mean, which is evidence too:

    * of the requests whose arrivals let expect the longest waits, how much later did they come
      than is usual (the means of logarithms, less what is usual);
    * how many waits exceeded the lane's p95 of all slices so far, of either version.

    The other figures are means: of a share, or of the device time for each good request.
    """

    def __init__(self, guardrail: Guardrail, lane: str) -> None:
        self.guardrail, self.lane = guardrail, lane
        self._read, self.weight = FIGURES[guardrail.figure]
        self.is_tail = guardrail.figure in TAILS
        self._expected, self._exceeds = Expected(), Expected()
        self._bets = [Bets(guardrail.shift)]
        if self.is_tail and not guardrail.allowed:  # how many more a ratio makes is not known
            self._bets.append(Bets())
        self._gains = Bets()  # against "the candidate is no better"
        self.pairs = 0  # that counted
        self.differences: list[float] = []  # of those with requests on both sides
        self._values: list[float] = []

    @property
    def evidence(self) -> float:
        """The logarithm of the e-value."""
        return mean_of_logs([each.evidence for each in self._bets])

    @property
    def gain(self) -> float:
        """As evidence, that the candidate is better."""
        return self._gains.evidence

    def start_over(self, past: Iterable[Seen]) -> None:
        """The expected waits of all requests so far have changed."""
        self._expected, self._exceeds, self._values = Expected(), Expected(), []
        self.learn(past)

    def learn(self, seen: Iterable[Seen]) -> None:
        """Requests of both versions."""
        known = [(each, value) for each in seen if (value := self._read(each)) is not None]
        if self.guardrail.figure == "cost_per_good":
            return
        for each, value in known:
            self._expected.learn(each.expected, value)
        if self.is_tail and known:
            self._values = sorted([*self._values, *[value for _, value in known]])
            beyond = self._beyond
            for each, value in known:
                self._exceeds.learn(each.expected, float(value > beyond))

    @property
    def _beyond(self) -> float:
        return self._values[int(len(self._values) * BEYOND)]

    def see(self, control: Sequence[Seen], candidate: Sequence[Seen]) -> None:
        """A pair of slices, whose requests have been learnt before."""
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
            beyond, longest = self._beyond, self._expected.top(TAIL)
            missed = [
                [float(value > beyond) - self._exceeds.at(each.expected) for each, value in half]
                for half in pair
            ]
            for place in range(1, len(self._bets)):
                self._bets[place].see(_shrunk(missed[1]) - _shrunk(missed[0]))
            pair = [[(e, v) for e, v in half if e.expected >= longest] for half in pair]
        rest = [[value - self._expected.at(each.expected) for each, value in h] for h in pair]
        if any(rest):
            complete = [_mean(rest[1]) - _mean(rest[0])] if all(rest) else []
            self._see(_shrunk(rest[1]) - _shrunk(rest[0]), complete)

    def _see(self, difference: float, complete: list[float]) -> None:
        """complete: the difference of the means, where both halves had requests."""
        self.pairs += 1
        self._bets[0].see(difference)
        self._gains.see(-difference)
        self.differences += complete


def _shrunk(rest: Sequence[float]) -> float:
    """The mean, less sure of few requests: without any it is 0, what is usual. It knows of no
    version, so the pair's difference keeps its fair sign."""
    return sum(rest) / (len(rest) + FEWEST)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _cost_per_good(half: Sequence[Seen]) -> float:
    """Nanoseconds of device time for each good request; 0: there was none."""
    rows = [each.row for each in half if each.row]
    good = sum([row.good for row in rows])
    return sum([row.nanoseconds for row in rows]) / good if good else 0.0
