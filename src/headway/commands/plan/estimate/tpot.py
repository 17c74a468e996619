"""The largest batch that keeps a TPOT."""

from headway.commands.plan.estimate.checked_estimate import Estimate
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic
from headway.commands.plan.estimate.simulated_machine import largest_count
from headway.commands.plan.estimate.step_times import StepTimes
from headway.errors import SettingError

MOST = 1 << 20  # the largest batch that is looked at, in requests


def largest_batch(steps: StepTimes, traffic: PlannedTraffic, tpot: int, slots: int) -> Estimate:
    """The most rows that decode within the TPOT.

    tpot: nanoseconds. slots: the most rows that the cost model was fitted to. Raises SettingError
    if a single request is too slow, or if the TPOT limits no batch.
    """
    alone, most = (steps.decoding(rows, traffic.context) for rows in (1, MOST))
    if alone > tpot:
        raise SettingError(
            f"a TPOT of {tpot / 1e6:g} ms cannot be kept: a request alone takes {alone / 1e6:.3g} "
            "ms a token; ask for more time"
        )
    if most <= alone:
        raise SettingError("by this cost model a larger batch costs nothing: calibrate again")
    if most <= tpot:
        raise SettingError(
            f"a TPOT of {tpot / 1e6:g} ms limits no batch: {MOST:,} requests at once take "
            f"{most / 1e6:.3g} ms a token; ask for less time"
        )
    value = largest_count(lambda count: steps.decoding(count, traffic.context) <= tpot, slots)
    return Estimate(
        question=f"largest batch within a TPOT of {tpot / 1e6:g} ms",
        value=value,
        unit="requests",
        formula="the most rows whose decode step, with the host's time after it, takes no longer",
        assumes="all requests decode, no prompt is computed; contexts of the mean length",
        source="the cost model, inverted by bisection",
        holds="exact for one length, except for rounding to whole steps",
        outside="" if value <= slots else f"the cost model was fitted up to {slots} rows",
    )
