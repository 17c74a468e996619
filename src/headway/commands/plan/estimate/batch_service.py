"""Batch service: the server takes all waiting requests as a group; b take alpha b + tau0."""

from dataclasses import dataclass
from math import exp

from headway.commands.plan.estimate.checked_estimate import Estimate
from headway.commands.plan.estimate.step_times import StepTimes
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.report.formatting import duration

LEAST, MOST = 0.1, 0.9  # load (rate x alpha) where the bound is within 10 %


@dataclass(frozen=True, slots=True)
class GroupTime:
    """The time of a group: b requests take tau0 + alpha b nanoseconds."""

    alpha: float
    tau0: float


def mean_sojourn(rate: float, line: GroupTime) -> float:
    """Mean nanoseconds from arrival to answer: the lower of Inoue's two upper bounds.

    rate: requests per nanosecond; rate x alpha must be below 1.
    """
    alpha, tau0 = line.alpha, line.tau0
    rho = rate * alpha
    first = (alpha + tau0) / (2 * (1 - rho)) * (1 + 2 * rate * tau0 + (1 - rate * tau0) / (1 + rho))
    second = 1.5 * tau0 / (1 - rho) + alpha / 2 * (rho + 2) / (1 - rho**2)
    return min(first, second)


def mean_group_size(rate: float, line: GroupTime) -> float:
    """Approximate mean group size: the number that arrives while such a group is served."""
    return max(1.0, rate * line.tau0 / (1 - rate * line.alpha))


def woken_share(rate: float, line: GroupTime) -> float:
    """Approximate share of the requests that wait for the engine to wake up.

    These requests find the engine idle, or arrive while the first one is served. P(none came) is
    the probability of no arrival during a group of mean size. The mean group size is
    (rate x tau0 + P(none came)) / (1 - rate x alpha).
    """
    none = exp(-rate * (line.tau0 + line.alpha * mean_group_size(rate, line)))
    idle = (1 - rate * line.alpha) * none / (rate * line.tau0 + none)
    return idle * (1 + rate * (line.alpha + line.tau0))


def tangent(steps: StepTimes, prompt: int, rate: float) -> GroupTime:
    """The tangent to the cost model at the mean group size that the tangent itself implies.

    rate: requests per nanosecond. Raises SettingError if full batches are too slow for it.
    """
    size = 1.0
    for _ in range(50):
        alpha = steps.group(prompt, size + 1) - steps.group(prompt, size)
        line = GroupTime(alpha, max(0.0, steps.group(prompt, size) - alpha * size))
        if rate * alpha >= 1:
            break
        if abs((mean := mean_group_size(rate, line)) - size) < 1e-3 * size:
            return line
        size = (size + mean) / 2
    if rate * line.alpha >= 1:
        most = 1e9 / line.alpha
        raise SettingError(
            f"{rate * 1e9:.4g} requests a second are more than the {most:.4g} prompts of {prompt} "
            "tokens that full batches compute: lower the rate or shorten the prompts"
        )
    return line


def batch_service(steps: StepTimes, prompt: int, rate: float, slots: int = NEVER) -> Estimate:
    """Mean time to a one-token answer (a label, a score) for prompts of one length.

    rate: requests per second. slots: the most rows that the cost model was fitted to. Raises
    SettingError if full batches are too slow for the rate.
    """
    line = tangent(steps, prompt, rate / 1e9)
    rho = rate / 1e9 * line.alpha
    outside = [] if LEAST <= round(rho, 3) <= MOST else [f"the load is {rho:.2f}"]
    if (size := mean_group_size(rate / 1e9, line)) > slots:
        outside.append(f"groups of {size:.3g}, and the cost model was fitted up to {slots} rows")
    waking, wake = woken_share(rate / 1e9, line), steps.waking(rate / 1e9)
    longer = f", and {duration(wake)} of wake-up for {waking:.0%} of the requests" if wake else ""
    return Estimate(
        question="one-token answers, all waiting requests in one group: mean time to the answer",
        value=(mean_sojourn(rate / 1e9, line) + waking * wake - steps.unseen(prompt)) / 1e6,
        unit="ms",
        formula=(
            f"min(phi0, phi1) of a group of b taking {duration(line.alpha)} x b + "
            f"{duration(line.tau0)}, load {rho:.2f}{longer}"
        ),
        assumes="Poisson; each group takes all waiting requests; prompts of one length",
        source="Inoue 2021, Queueing analysis of GPU inference servers with dynamic batching",
        holds=(
            f"an upper bound{', except for the wake-up' if wake else ''}; within 10 % for loads of "
            f"{LEAST} to {MOST}"
        ),
        outside="; ".join(outside),
    )
