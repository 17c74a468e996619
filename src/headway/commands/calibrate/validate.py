"""A cost model against steps that it was not fitted on: recorded traffic, served live.

From one trace's window the model learns what only a live run can teach (the engine's own time, the
level, the spread); its errors are those in the steps of another trace.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import mean, median

from headway.commands.calibrate.correlation import correlation_parts, normal_scores
from headway.commands.calibrate.fit import ENGINE, Observation, fit_rates, fit_steps
from headway.commands.calibrate.observe import LiveStep
from headway.commands.calibrate.trials import Sample
from headway.core.cost.step_cost import (
    COMPUTE_BOUND,
    MEMORY_BOUND,
    WHOLE,
    Rates,
    Residuals,
    StepCost,
)

LIMITS = 0.5, 2.0  # that the level may be corrected by
QUANTILES = 21
OFTEN = 3  # that one step may count, where there are few like it
DESIGNED = 0.03  # of the live steps' say, that all designed batches have together
ENOUGH = 4 * QUANTILES  # steps of a regime, for quantiles of it
FEW, SURE = 10, 3.0  # of what steps take more: how many it is taken from, and its standard errors
REGIMES = {MEMORY_BOUND: "memory", COMPUTE_BOUND: "compute"}


@dataclass(frozen=True, slots=True)
class Errors:
    """Of predicted step times against measured ones, in thousandths."""

    steps: int
    median: int  # signed: below 0, predicted too short
    p90: int  # of the absolute ones
    total: int  # signed, of the sum of all the steps
    within: int  # steps that were not longer than their predicted 90th percentile


@dataclass(frozen=True, slots=True)
class LiveFit:
    """A cost model that has seen live traffic, and how it fares with other traffic."""

    cost: StepCost
    factor: float  # by which live steps took longer than designed batches, within LIMITS
    before: dict[str, Errors]  # of the designed batches' fit alone; by regime, and of all steps
    after: dict[str, Errors]


def fit_live(
    cost: StepCost,
    samples: Sequence[Sample],
    learned: Sequence[LiveStep],
    held_out: Sequence[LiveStep],
) -> LiveFit:
    """Fit again, on the samples and on the live steps that may be learned from.

    The designed batches tell the terms apart, the live steps say how they add up in traffic: a
    sum of terms fits either a little wrongly, and it is traffic that it is to predict. So where
    both have been, the live steps decide; the designed batches where no traffic was. What is
    then left of the level is one factor; with that which the designed batches' times are brought to
    the live steps' level by, within LIMITS.

    cost: fitted on the designed batches alone, with the executor's host in it, not the engine's.
    """
    deciding, behind = engine_rates(learned)
    # What was measured at another hour's speed must not pull at some of the terms only.
    first = _within(_ratio(cost, learned))
    lived = _balanced(learned, cost.knee)
    weight = min(1.0, DESIGNED * len(lived) / len(samples)) if lived else 1.0
    both = [*lived, *(_scaled(sample, first, weight) for sample in samples)]
    refitted = replace(fit_steps(both, cost.rounding), gathering=cost.gathering)
    factor = _within(first * _ratio(refitted, learned)) / first
    live_fit = replace(
        refitted,
        device=_times(refitted.device, factor),
        pieces=tuple((begin, round(slope * factor)) for begin, slope in refitted.pieces),
        host=_sum(_times(refitted.host, factor), deciding),
        after=behind,
    )
    woken = extra_time(live_fit, [step for step in learned if step.woken])
    turned = extra_time(live_fit, [step for step in learned if step.turned])
    live_fit = replace(live_fit, wake=woken, turn=turned)
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
    """As many small as large ones, though traffic has few large ones, and none more than OFTEN
    times; of those that do not take more for what was before them."""
    sides: tuple[list[Sample], list[Sample]] = [], []
    for step in steps:
        if step.is_plain:
            spent = step.nanoseconds - step.deciding
            sample = Sample(step.features, spent, step.executor)
            sides[step.features.tokens > knee].append(sample)
    half = sum(map(len, sides)) // 2
    chosen = list[Sample]()
    for side in sides:
        many = min(half, OFTEN * len(side))
        chosen += [side[k * len(side) // many] for k in range(many)]
    return chosen


def engine_rates(steps: Sequence[LiveStep]) -> tuple[Rates, Rates]:
    """Of deciding a step, and of what is done behind it."""
    deciding = [Observation(step.features, step.deciding) for step in steps if step.deciding > 0]
    behind = [Observation(step.features, step.after) for step in steps if step.after > 0]
    return _engine(deciding), _engine(behind)


def _engine(points: Sequence[Observation]) -> Rates:
    """That sum to what was measured.

    A robust fit of relative errors lies below the mean of gaps that now and then are long, and
    neither the last factor nor the residuals are of these times.
    """
    if not points:
        return Rates()
    rates = fit_rates(points, ENGINE)
    predicted = sum(rates.of(point.features) for point in points)
    measured = 1_000 * sum(point.nanoseconds for point in points)
    return _times(rates, measured / predicted) if predicted else rates


def extra_time(cost: StepCost, steps: Sequence[LiveStep]) -> int:
    """Nanoseconds more that these steps take, behind a sleep or a step of another kind; 0 where it
    is not sure. What lies far off counts as SURE standard deviations.

    Caches have been used by others meanwhile, clocks have been lowered.
    """
    more = [step.nanoseconds - cost.predict(step.features) for step in steps]
    if len(more) < FEW:
        return 0
    middle = median(more)
    spread = 1.4826 * median(abs(each - middle) for each in more)
    low, high = middle - SURE * spread, middle + SURE * spread
    found = mean(min(max(each, low), high) for each in more)
    return round(found) if found > SURE * spread / sqrt(len(more)) else 0


def errors(cost: StepCost, steps: Sequence[LiveStep]) -> dict[str, Errors]:
    """By regime, and of all; a regime without steps is not among them."""
    found = dict[str, Errors]()
    for name, regimes in {**{name: {at} for at, name in REGIMES.items()}, "all": {0, 1}}.items():
        mine = [step for step in steps if cost.regime(step.features) in regimes]
        if mine:
            found[name] = _errors(cost, mine)
    return found


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
    """Nanoseconds that nine of ten such steps do not exceed, as a simulation has them."""
    return cost.quantile(step.features, 0.9) + step.more(cost)


def with_residuals(cost: StepCost, steps: Sequence[LiveStep]) -> StepCost:
    """By how much these steps differ from their prediction, by regime, and for how long; a regime
    with too few of them has the spread of all."""
    known = [[step for step in steps if cost.regime(step.features) == regime] for regime in REGIMES]
    memory, compute = (residuals(cost, mine if len(mine) >= ENOUGH else steps) for mine in known)
    scored = sorted(
        (step.began, score)
        for mine in known
        for step, score in zip(mine, normal_scores(_factors(cost, mine)), strict=True)
    )
    found = correlation_parts([score for _, score in scored], [began for began, _ in scored])
    return replace(cost, residuals=(memory, compute), echoes=found)


def residuals(cost: StepCost, steps: Sequence[LiveStep]) -> Residuals:
    """Quantiles at equal distances.

    The outermost are such that what is drawn from the outermost pieces has the mean that was
    measured there: a single step of ten times its price is not to weigh like a twentieth of all
    steps.
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
    """Of what these steps took without the engine to what they were predicted to take."""
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
