"""What is compared: a library in one setting of its window, and which setting was the best."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.batcher.contender import LOADS
from benchmarks.report import Figure

LOW, HIGH = LOADS
# Of the items at LOW, in the worst round. A refused item has no time, so the p95 of the others is
# the p94.5 of all at worst. A pause of the machine of some 150 ms fills a line of 256 once and
# costs about as much.
LEFT_OUT = 0.005


class Setting(NamedTuple):
    """A library with one window."""

    library: str
    wait: float = 0.0  # milliseconds

    def __str__(self) -> str:
        return f"{self.library}, {self.wait:g} ms" if self.wait else self.library


Runs = Sequence[dict[str, float]]  # round by round
Results = Mapping[tuple[Setting, float], Runs]  # by setting and load


def best(results: Results, settings: Iterable[Setting], load: float, what: str) -> Setting | None:
    """By the median of the rounds: the highest rate, or the lowest of anything else. None: no
    setting was measured."""
    sign = -1 if what == "rate" else 1
    measured = [each for each in settings if results.get((each, load))]
    key = {each: sign * median([run[what] for run in results[each, load]]) for each in measured}
    return min(measured, key=lambda each: key[each]) if measured else None


def ratios(results: Results, one: Setting, other: Setting, load: float, what: str) -> list[float]:
    """Round by round. ValueError if one has a round that the other has not."""
    pairs = zip(results[one, load], results[other, load], strict=True)
    return [mine[what] / its[what] for mine, its in pairs]


def left_out(runs: Runs, what: str) -> Figure:
    """Items without a time: so many at LOW may be `refused`, or `not_sent` at all."""
    return Figure(f"{what}_at_80", [max([each[what] for each in runs])], most=LEFT_OUT)


def medians(runs: Runs) -> dict[str, float]:
    return {key: median([each[key] for each in runs]) for key in runs[0]}
