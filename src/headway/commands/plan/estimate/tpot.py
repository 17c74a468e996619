"""How many may decode together and still keep the pace."""

from headway.commands.plan.estimate.checked_estimate import Estimate
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic
from headway.commands.plan.estimate.simulated_machine import largest_count
from headway.commands.plan.estimate.step_times import StepTimes
from headway.errors import SettingError


def largest_batch(steps: StepTimes, traffic: PlannedTraffic, tpot: int, slots: int) -> Estimate:
    """tpot: nanoseconds; slots: up to which the cost model was fitted."""
    if steps.decoding(1, traffic.context) > tpot:
        alone = steps.decoding(1, traffic.context) / 1e6
        raise SettingError(
            f"a TPOT of {tpot / 1e6:g} ms cannot be kept: a request alone takes {alone:.3g} ms a "
            "token; ask for more"
        )
    if steps.decoding(1 << 20, traffic.context) <= tpot:
        raise SettingError("this cost model says that a batch costs nothing: calibrate again")
    value = largest_count(lambda count: steps.decoding(count, traffic.context) <= tpot, slots)
    return Estimate(
        question=f"largest batch within a TPOT of {tpot / 1e6:g} ms",
        value=value,
        unit="requests",
        formula="the most rows whose decode step, with the host's time behind it, takes no longer",
        assumes="all decode, nobody's prompt is computed meanwhile; contexts of the mean length",
        source="the cost model, inverted by bisection",
        holds="exact for one length, but for rounding to whole steps",
        outside="" if value <= slots else f"the cost model was fitted up to {slots} rows",
    )
