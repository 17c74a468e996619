"""A plan's first lines: the answer, and why the other estimates of the same rate differ."""

from collections.abc import Sequence

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
    served: float = 0.0,
) -> list[str]:
    """The lines in order, the answer first.

    run: the simulation at the traffic's rate. limits: TTFT and TPOT in nanoseconds, 0 for none.
    rates: the lines about the highest rate, from `rates`. served: requests per second that the
    machine serves, if the rate is more than that; 0: it keeps up.
    """
    figures = [
        f"the mean TTFT is {duration(run.ttft)}{_kept(run.ttft, limits[0])}",
        f"the TPOT {duration(run.tpot)}{_kept(run.tpot, limits[1])}"
        if run.tpot
        else "answers of one token have no TPOT",
    ]
    here = (
        f"At {traffic.rate:.4g} requests/s {' and '.join(figures)} (simulated with "
        f"{machine.slots} slots and Poisson arrivals; all waiting requests join the next step)."
    )
    if not served:
        return [here, *rates]
    behind = (
        f"The machine serves only {served:.4g} requests/s of them: at this rate the wait grows "
        f"without end, and the figures are those of the first {len(run.requests):,} requests."
    )
    return [here, behind, *rates]


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
    is_kept: bool,
) -> list[str]:
    """The highest rate within the TTFT budget by the best estimate, then by the other estimates.

    ttft: nanoseconds. full: the formula's rate and the simulator's. burstiness: None if the
    trace's own arrivals were not simulated. is_kept: whether steps that take all waiting prompts
    keep the budget at the traffic's rate, with Poisson arrivals.
    """
    poisson = full.simulated or 0.0
    if burstiness is None:
        best, how = poisson, "simulated with Poisson arrivals"
    else:
        best, how = burstiness.recorded, f"simulated with {_played(traffic, burstiness)}"
    lines = [
        f"A mean TTFT of {duration(ttft)} {_up_to(best)}: {how}, one prompt a step."
        f"{_enough(best, traffic, is_kept and poisson < traffic.rate)}",
        "Other estimates of that rate, and why they differ:",
    ]
    if burstiness is not None:
        why = (
            "without the trace's bursts" if poisson >= best else "the trace's own come more evenly"
        )
        lines.append(f"- {poisson:.4g} simulated with Poisson arrivals: {why}.")
    outside = (
        f" Outside its valid range here: {full.estimate.outside}." if full.estimate.outside else ""
    )
    lines.append(
        f"- {full.estimate.value:.4g} by the formula (M/G/1): Poisson arrivals too, and it ignores "
        f"the limits of {machine.slots} slots and of the KV memory.{outside}"
    )
    return lines


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
    return f"is kept up to {rate:.4g} requests/s" if rate else "is kept at no rate"


def _enough(rate: float, traffic: PlannedTraffic, others_keep: bool) -> str:
    """others_keep: one prompt a step is too slow for the rate, and all waiting ones are not."""
    if rate >= traffic.rate:
        return ""
    below = f" That is below the {traffic.rate:.4g} asked about"
    if others_keep:
        return f"{below}; steps that take all waiting prompts keep it there (first line)."
    return f"{below}: one such machine is not enough."
