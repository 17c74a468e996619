"""Burstiness: how far a trace's arrivals are from Poisson, and the rates that result."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

from headway.commands.plan.estimate.planned_traffic import SECOND


def dispersion(times: Sequence[int], window: int) -> float:
    """The variance over the mean of the arrivals per window. window: nanoseconds.

    It is 1 for Poisson arrivals, and 0.0 if the times do not span two windows. This is the index
    of dispersion for counts (Cox and Lewis, 1966). The spread of the gaps alone would not show
    bursts that last minutes.
    """
    first = times[0]
    whole = (times[-1] - first) // window
    if whole < 2:
        return 0.0
    counted = Counter((time - first) // window for time in times)
    counts = [counted[at] for at in range(whole)]
    return pvariance(counts) / fmean(counts)


def windows(ttft: int) -> tuple[int, ...]:
    """The windows in nanoseconds, ascending: the TTFT budget, 1, 10 and 60 seconds."""
    return tuple(sorted({ttft, SECOND, 10 * SECOND, 60 * SECOND} - {0}))


@dataclass(frozen=True, slots=True)
class Burstiness:
    """The highest requests per second within the TTFT budget, by formula and simulated."""

    requests: int  # how many of the trace's requests were simulated
    span: float  # seconds of the trace that these requests span
    dispersion: Mapping[int, float]  # of the whole trace, by window in nanoseconds
    formula: float  # M/G/1
    # simulated, and at most what the machine serves; 0: even a thousandth of the first guess breaks
    # the budget
    poisson: float  # Poisson arrivals of the trace's lengths
    recorded: float  # the trace's own arrivals, sped up or slowed down

    @property
    def times(self) -> float:
        """The formula's rate over `recorded`; inf if that is 0."""
        return self.formula / self.recorded if self.recorded else float("inf")
