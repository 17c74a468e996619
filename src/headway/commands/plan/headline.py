"""A plan's first lines: the answer, and why the other estimates of the same rate differ."""

from collections.abc import Sequence
from math import inf

from headway.commands.plan.estimate.burstiness import Burst
from headway.commands.plan.estimate.checked_estimate import Answered
from headway.commands.plan.estimate.planned_traffic import Work
from headway.commands.plan.estimate.simulated_machine import Machine, Served
from headway.report.words import duration


def headline(
    machine: Machine, work: Work, run: Served, limits: tuple[int, int], rates: Sequence[str]
) -> list[str]:
    """run: at the work's rate, simulated. limits: TTFT and TPOT in nanoseconds, 0: none.
    rates: what is said of the highest rate."""
    figures = [
        f"the mean TTFT is {duration(run.ttft)}{_kept(run.ttft, limits[0])}",
        f"the TPOT {duration(run.tpot)}{_kept(run.tpot, limits[1])}",
    ]
    here = (
        f"At {work.rate:.4g} requests/s {' and '.join(figures)}: simulated, {machine.slots} slots, "
        "Poisson arrivals, all that wait join the next step."
    )
    return [here, *rates]


def _kept(value: float, limit: int) -> str:
    if not limit:
        return ""
    return f" ({'within' if value <= limit else 'over'} the {duration(limit)} asked for)"


def rates(
    machine: Machine, work: Work, ttft: int, full: Answered, burst: Burst | None
) -> list[str]:
    """The highest rate within the TTFT budget, by the best of the estimates; then the others."""
    poisson = _rate(full.simulated)
    if burst is None:
        best, how = poisson, "simulated with Poisson arrivals"
    else:
        best, how = _rate(burst.recorded), f"simulated with {_played(work, burst)}"
    lines = [
        f"A mean TTFT of {duration(ttft)} {_up_to(best)}: {how}, one prompt a step."
        f"{_enough(best, work)}",
        "Other estimates of that rate, and why they differ:",
    ]
    if burst is not None:
        why = "without its bursts" if poisson >= best else "its own come more evenly"
        lines.append(f"- {_short(poisson)} simulated with Poisson arrivals: {why}.")
    outside = f" Outside its range here: {full.estimate.outside}." if full.estimate.outside else ""
    lines.append(
        f"- {full.estimate.value:.4g} by the formula (M/G/1): Poisson arrivals too, and it knows "
        f"neither the {machine.slots} slots nor the KV memory.{outside}"
    )
    return lines


def _rate(found: float | None) -> float:
    """None: no rate breaks the budget; 0: not even a thousandth of the formula's keeps it."""
    return inf if found is None else found


def _played(work: Work, burst: Burst) -> str:
    if burst.requests >= len(work.lengths):
        return f"the trace's own arrivals, all {burst.requests:,} played faster or slower"
    part = work.cut(burst.requests)
    return (
        f"the trace's first {burst.requests:,} of {len(work.lengths):,} arrivals played faster or "
        f"slower ({part.prompt:,.0f} + {part.answer:,.0f} tokens on average, "
        f"{work.prompt:,.0f} + {work.answer:,.0f} in all)"
    )


def _up_to(rate: float) -> str:
    if rate == inf:
        return "is kept at any rate that could be tried"
    return f"is kept up to {rate:.4g} requests/s" if rate else "is kept at no rate"


def _short(rate: float) -> str:
    return "any rate" if rate == inf else f"{rate:.4g}"


def _enough(rate: float, work: Work) -> str:
    if rate >= work.rate:
        return ""
    return f" That is less than the {work.rate:.4g} asked about: one such machine is not enough."
