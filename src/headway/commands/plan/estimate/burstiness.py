"""How much burstier arrivals are than the formulas take them for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

from headway.commands.plan.estimate.planned_traffic import SECOND


def dispersion(times: Sequence[int], window: int) -> float:
    """Variance over mean of the counts in whole windows of so many nanoseconds. Poisson: 1.

    0.0 where the times do not span two windows. (Cox and Lewis 1966: index of dispersion for
    counts; the spread of the gaps alone says nothing about what comes minutes apart.)
    """
    first = times[0]
    whole = (times[-1] - first) // window
    if whole < 2:
        return 0.0
    counted = Counter((time - first) // window for time in times)
    counts = [counted[at] for at in range(whole)]
    return pvariance(counts) / fmean(counts)


def windows(ttft: int) -> tuple[int, ...]:
    """Nanoseconds: the budget's own, a second, ten, a minute."""
    return tuple(sorted({ttft, SECOND, 10 * SECOND, 60 * SECOND} - {0}))


@dataclass(frozen=True, slots=True)
class Burstiness:
    """Rates, in requests per second, up to which the mean TTFT stays within its budget."""

    requests: int  # of the trace that were played
    span: float  # seconds of the trace in which they came
    dispersion: Mapping[int, float]  # of the whole trace, by window in nanoseconds
    formula: float  # M/G/1
    # the simulator; 0: not even a thousandth of the formula's, None: no rate breaks the budget
    poisson: float | None  # Poisson arrivals of the trace's lengths
    recorded: float | None  # the trace's own arrivals played faster or slower

    @property
    def times(self) -> float:
        """As many machines as the formula says are needed indeed; 0 where no rate is too high."""
        if self.recorded is None:
            return 0.0
        return self.formula / self.recorded if self.recorded else float("inf")
