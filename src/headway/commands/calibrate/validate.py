"""The fit to live traffic, and the errors of the fit in held-out traffic.

A window of one trace gives what only a live run can: the engine's own time, the level and the
spread. The errors are measured on the steps of another trace.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import mean, median

from headway.commands.calibrate.correlation import correlation_parts, normal_scores
from headway.commands.calibrate.fit import ENGINE, Observation, fit_rates, fit_steps
from headway.commands.calibrate.observe import WAKING, LiveStep
from headway.commands.calibrate.trials import Sample
from headway.core.cost.step_cost import (
    COMPUTE_BOUND,
    MEMORY_BOUND,
    WHOLE,
    Rates,
    Residuals,
    StepCost,
)

LIMITS = 0.5, 2.0  # of the factor that corrects the level
QUANTILES = 21
OFTEN = 3  # the most times a step counts, if its side of the knee has few steps
DESIGNED = 0.03  # weight of all designed batches together, relative to the live steps
ENOUGH = 4 * QUANTILES  # steps that the quantiles of a regime need
FEW, SURE = 10, 3.0  # needed for extra time: steps, and standard errors above 0
REPEATED = 4  # rounds that find outliers, given the extra time found so far
COOLINGS = (0, *(1_000_000 << power for power in range(11)))  # nanoseconds: none, 1 ms to 1 s
REGIMES = {MEMORY_BOUND: "memory", COMPUTE_BOUND: "compute"}


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of predicted against measured step times, in thousandths."""

    steps: int
    median: int  # signed; below 0 the prediction is too short
    p90: int  # of the absolute errors
    total: int  # signed, of the sum of all steps
    within: int  # steps within their predicted 90th percentile


@dataclass(frozen=True, slots=True)
class LiveFit:
    """A cost model that is also fitted to live traffic, and its errors in held-out traffic."""

    cost: StepCost
    factor: float  # time of live steps over that of designed batches, within LIMITS
    before: dict[str, Errors]  # of the fit to designed batches alone, by regime and over all steps
    after: dict[str, Errors]  # of `cost`


def fit_live(
    cost: StepCost,
    samples: Sequence[Sample],
    learned: Sequence[LiveStep],
    held_out: Sequence[LiveStep],
) -> LiveFit:
    """Fit again, to the designed batches and to the live steps of `learned`.

    The designed batches separate the terms. The live steps show how the terms add up in traffic,
    which the model has to predict. So the live steps weigh most where both kinds exist; elsewhere
    the designed batches decide. Before the fit, a factor brings the designed batches to the level
    of the live steps. After it, another factor corrects the remaining difference. Their product
    stays within LIMITS.

    cost: the fit to the designed batches alone; it includes the executor's host time but not the
    engine's. held_out: steps for the errors alone. Raises SettingError if scipy is missing.
    """
    deciding, behind = engine_rates(learned)
    # Batches measured at another speed of the machine would otherwise distort single terms.
    first = _within(_ratio(cost, learned))
    lived = _balanced(learned, cost.knee)
    weight = min(1.0, DESIGNED * len(lived) / len(samples)) if lived else 1.0
    both = [*lived, *(_scaled(sample, first, weight) for sample in samples)]
    # Only designed batches separate tiles from tokens: few live steps exactly fill their tiles.
    refitted = fit_steps(both, cost.rounding, round(cost.tile * first))
    refitted = replace(refitted, gathering=cost.gathering)
    factor = _within(first * _ratio(refitted, learned)) / first
    live_fit = replace(
        refitted,
        device=_times(refitted.device, factor),
        pieces=tuple((begin, round(slope * factor)) for begin, slope in refitted.pieces),
        tile=round(refitted.tile * factor),
        host=_sum(_times(refitted.host, factor), deciding),
        after=behind,
    )
    settled = [step for step in learned if step.turned and step.since >= WAKING]
    live_fit = replace(with_waking(live_fit, learned), turn=extra_time(live_fit, settled))
    alone = replace(cost, host=_sum(cost.host, deciding), after=behind, knee=live_fit.knee)
    final = with_residuals(live_fit, learned)
    return LiveFit(
        cost=final,
        factor=first * factor,
        before=errors(with_residuals(alone, learned), held_out),
        after=errors(final, held_out),
    )


def _within(factor: float) -> float:
    low, high = LIMITS
    return min(high, max(low, factor))


def _scaled(sample: Sample, factor: float, weight: float) -> Sample:
    spent, host = sample.nanoseconds * factor, sample.host * factor
    return Sample(sample.features, round(spent), round(host), weight)


def _balanced(steps: Sequence[LiveStep], knee: int) -> list[Sample]:
    """As many steps above the knee as below, though traffic has few large steps.

    A step counts at most OFTEN times. Steps after a sleep or a turn are left out.
    """
    sides: tuple[list[Sample], list[Sample]] = [], []
    for step in steps:
        if step.is_plain:
            spent = step.nanoseconds - step.deciding
            sample = Sample(step.features, spent, step.executor)
            sides[step.features.tokens > knee].append(sample)
    half = sum(map(len, sides)) // 2
    chosen = list[Sample]()
    for side in sides:
        count = min(half, OFTEN * len(side))
        chosen += [side[k * len(side) // count] for k in range(count)]
    return chosen


def engine_rates(steps: Sequence[LiveStep]) -> tuple[Rates, Rates]:
    """The engine's rates for deciding a step, and for its work after a step.

    Raises SettingError if scipy is missing.
    """
    deciding = [Observation(step.features, step.deciding) for step in steps if step.deciding > 0]
    behind = [Observation(step.features, step.after) for step in steps if step.after > 0]
    return _engine(deciding), _engine(behind)


def _engine(points: Sequence[Observation]) -> Rates:
    """Rates whose predictions add up to the measured time.

    The engine sometimes takes long, so a robust fit of relative errors lies below the mean. Neither
    the factor nor the residuals correct these times.
    """
    if not points:
        return Rates()
    rates = fit_rates(points, ENGINE)
    predicted = sum(rates.of(point.features) for point in points)
    measured = 1_000 * sum(point.nanoseconds for point in points)
    return _times(rates, measured / predicted) if predicted else rates


def with_waking(cost: StepCost, steps: Sequence[LiveStep]) -> StepCost:
    """Add to the cost model the price of waking up, measured on these steps.

    The longer the engine sleeps, the more of its caches others use. So the length of a full sleep
    (`cooling`) is the one of COOLINGS with which the first steps differ least from their price.
    """
    first, *later = ([step for step in steps if step.since == nth] for nth in range(WAKING))
    tried = list[tuple[int, int, int]]()
    for cooling in COOLINGS:
        wake = extra_time(cost, first, _shares(first, cooling))
        woken = replace(cost, wake=wake, cooling=cooling)
        far = sum(abs(step.nanoseconds - step.predicted(woken)) for step in first)
        tried.append((far, cooling if wake else 0, wake))
    _, cooling, wake = min(tried)
    tail = [extra_time(cost, mine, _shares(mine, cooling)) for mine in later] if wake else []
    while tail and not tail[-1]:
        tail.pop()
    return replace(cost, wake=wake, wake_tail=tuple(tail), cooling=cooling)


def _shares(steps: Iterable[LiveStep], cooling: int) -> list[float]:
    """Each step's sleep as a share of a full sleep (`cooling`), at most 1."""
    return [min(1.0, step.slept / cooling) if cooling else 1.0 for step in steps]


def extra_time(cost: StepCost, steps: Sequence[LiveStep], shares: Sequence[float] = ()) -> int:
    """Mean nanoseconds that these steps take beyond their price; 0 if that is not certain.

    Steps after a sleep or a turn take longer: others used the caches, clocks were lowered. Outliers
    count as SURE standard deviations. shares: the share of the extra time that each step takes;
    empty: all of it.
    """
    shares = shares or [1.0] * len(steps)
    more = [step.nanoseconds - cost.predict(step.features) for step in steps]
    if len(more) < FEW:
        return 0
    slope = sum(more) / sum(shares)
    for _ in range(REPEATED):
        over = [each - slope * share for each, share in zip(more, shares, strict=True)]
        middle = median(over)
        spread = 1.4826 * median(abs(each - middle) for each in over)
        low, high = middle - SURE * spread, middle + SURE * spread
        slope += mean(min(max(each, low), high) for each in over) * len(over) / sum(shares)
    return round(slope) if slope * mean(shares) > SURE * spread / sqrt(len(more)) else 0


def errors(cost: StepCost, steps: Sequence[LiveStep]) -> dict[str, Errors]:
    """The errors by regime, and of `all` steps. A regime without steps is left out."""
    by_regime = dict[str, Errors]()
    for name, regimes in {**{name: {at} for at, name in REGIMES.items()}, "all": {0, 1}}.items():
        mine = [step for step in steps if cost.regime(step.features) in regimes]
        if mine:
            by_regime[name] = _errors(cost, mine)
    return by_regime


def _errors(cost: StepCost, steps: Sequence[LiveStep]) -> Errors:
    signed = [step.predicted(cost) / step.nanoseconds - 1 for step in steps]
    absolute = sorted(map(abs, signed))
    whole = sum(step.nanoseconds for step in steps)
    within = [step.nanoseconds <= _ninetieth(cost, step) for step in steps]
    return Errors(
        steps=len(steps),
        median=_thousandths(median(signed)),
        p90=_thousandths(absolute[-(-9 * len(absolute) // 10) - 1]),
        total=_thousandths(sum(step.predicted(cost) for step in steps) / whole - 1),
        within=_thousandths(mean(within)),
    )


def _ninetieth(cost: StepCost, step: LiveStep) -> int:
    """The 90th percentile of such a step's nanoseconds, as a simulation draws them."""
    return cost.quantile(step.features, 0.9) + step.more(cost)


def with_residuals(cost: StepCost, steps: Sequence[LiveStep]) -> StepCost:
    """The cost model with the residuals of these steps by regime, and their correlation in time.

    A regime with fewer than ENOUGH steps takes the residuals of all steps. Raises SettingError if
    scipy is missing.
    """
    known = [[step for step in steps if cost.regime(step.features) == regime] for regime in REGIMES]
    memory, compute = (residuals(cost, mine if len(mine) >= ENOUGH else steps) for mine in known)
    scored = sorted(
        (step.began, score)
        for mine in known
        for step, score in zip(mine, normal_scores(_factors(cost, mine)), strict=True)
    )
    parts = correlation_parts([score for _, score in scored], [began for began, _ in scored])
    return replace(cost, residuals=(memory, compute), echoes=parts)


def residuals(cost: StepCost, steps: Sequence[LiveStep]) -> Residuals:
    """QUANTILES evenly spaced quantiles of measured over predicted time, in thousandths.

    The outermost two are set so that draws from the outermost pieces have the measured mean there.
    Otherwise a single step of ten times its price would weigh as much as a twentieth of all steps.
    """
    if len(steps) < ENOUGH:
        return Residuals()
    ordered, last = sorted(_factors(cost, steps)), len(steps) - 1
    inner = [ordered[round(last * k / (QUANTILES - 1))] for k in range(1, QUANTILES - 1)]
    outer = max(1, len(ordered) // (QUANTILES - 1))
    least = min(inner[0], max(0.0, 2 * mean(ordered[:outer]) - inner[0]))
    most = max(inner[-1], 2 * mean(ordered[-outer:]) - inner[-1])
    return Residuals(tuple(_thousandths(each) for each in (least, *inner, most)))


def _factors(cost: StepCost, steps: Iterable[LiveStep]) -> list[float]:
    return [step.nanoseconds / step.predicted(cost) for step in steps]


def _ratio(cost: StepCost, steps: Iterable[LiveStep]) -> float:
    """Measured time of the plain steps, without the engine's, over their predicted time."""
    took, predicted = 0, 0
    for step in [step for step in steps if step.is_plain]:
        took += step.nanoseconds - step.deciding
        predicted += step.predicted(cost)
    return took / predicted if predicted else 1.0


def _times(rates: Rates, factor: float) -> Rates:
    return Rates(*[round(getattr(rates, name) * factor) for name in Rates.__slots__])


def _sum(one: Rates, other: Rates) -> Rates:
    return Rates(*[getattr(one, name) + getattr(other, name) for name in Rates.__slots__])


def _thousandths(share: float) -> int:
    return round(share * WHOLE)
