"""A plan's first lines: the answer, and why the other estimates of the same rate differ."""

from collections.abc import Sequence
from math import inf

from headway.commands.plan.estimate.burstiness import Burstiness
from headway.commands.plan.estimate.checked_estimate import CheckedEstimate
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic
from headway.commands.plan.estimate.simulated_machine import Machine, SimulatedRun
from headway.report.formatting import duration


def headline(
    machine: Machine,
    traffic: PlannedTraffic,
    run: SimulatedRun,
    limits: tuple[int, int],
    rates: Sequence[str],
) -> list[str]:
    """The lines in order, the answer first.

    run: the simulation at the traffic's rate. limits: TTFT and TPOT in nanoseconds, 0 for none.
    rates: the lines about the highest rate, from `rates`.
    """
    figures = [
        f"the mean TTFT is {duration(run.ttft)}{_kept(run.ttft, limits[0])}",
        f"the TPOT {duration(run.tpot)}{_kept(run.tpot, limits[1])}",
    ]
    here = (
        f"At {traffic.rate:.4g} requests/s {' and '.join(figures)} (simulated with "
        f"{machine.slots} slots and Poisson arrivals; all waiting requests join the next step)."
    )
    return [here, *rates]


def _kept(value: float, limit: int) -> str:
    if not limit:
        return ""
    return f" ({'within' if value <= limit else 'over'} the {duration(limit)} asked for)"


def rates(
    machine: Machine,
    traffic: PlannedTraffic,
    ttft: int,
    full: CheckedEstimate,
    burstiness: Burstiness | None,
) -> list[str]:
    """The highest rate within the TTFT budget by the best estimate, then by the other estimates.

    ttft: nanoseconds. full: the formula's rate and the simulator's. burstiness: None if the
    trace's own arrivals were not simulated.
    """
    poisson = _rate(full.simulated)
    if burstiness is None:
        best, how = poisson, "simulated with Poisson arrivals"
    else:
        best, how = _rate(burstiness.recorded), f"simulated with {_played(traffic, burstiness)}"
    lines = [
        f"A mean TTFT of {duration(ttft)} {_up_to(best)}: {how}, one prompt a step."
        f"{_enough(best, traffic)}",
        "Other estimates of that rate, and why they differ:",
    ]
    if burstiness is not None:
        why = (
            "without the trace's bursts" if poisson >= best else "the trace's own come more evenly"
        )
        lines.append(f"- {_short(poisson)} simulated with Poisson arrivals: {why}.")
    outside = (
        f" Outside its valid range here: {full.estimate.outside}." if full.estimate.outside else ""
    )
    lines.append(
        f"- {full.estimate.value:.4g} by the formula (M/G/1): Poisson arrivals too, and it ignores "
        f"the limits of {machine.slots} slots and of the KV memory.{outside}"
    )
    return lines


def _rate(found: float | None) -> float:
    """Turn None (no rate breaks the budget) into inf. 0 means that every rate tried breaks it."""
    return inf if found is None else found


def _played(traffic: PlannedTraffic, burstiness: Burstiness) -> str:
    if burstiness.requests >= len(traffic.lengths):
        return f"the trace's own arrivals, all {burstiness.requests:,} sped up or slowed down"
    part = traffic.cut(burstiness.requests)
    return (
        f"the trace's first {burstiness.requests:,} of {len(traffic.lengths):,} arrivals, sped up "
        f"or slowed down (mean {part.prompt:,.0f} + {part.answer:,.0f} tokens; whole trace "
        f"{traffic.prompt:,.0f} + {traffic.answer:,.0f})"
    )


def _up_to(rate: float) -> str:
    if rate == inf:
        return "is kept at every rate tried"
    return f"is kept up to {rate:.4g} requests/s" if rate else "is kept at no rate"


def _short(rate: float) -> str:
    return "any rate" if rate == inf else f"{rate:.4g}"


def _enough(rate: float, traffic: PlannedTraffic) -> str:
    if rate >= traffic.rate:
        return ""
    return f" That is below the {traffic.rate:.4g} asked about: one such machine is not enough."
