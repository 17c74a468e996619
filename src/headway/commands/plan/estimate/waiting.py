"""The mean TTFT by queueing formulas, and the highest rate within a TTFT budget."""

from dataclasses import dataclass
from statistics import fmean

from headway.commands.plan.estimate.checked_estimate import Estimate
from headway.commands.plan.estimate.fluid import SteadyState, binding_limit, is_stable, steady_state
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic
from headway.commands.plan.estimate.simulated_machine import STEP_TOKENS, Machine, highest_rate
from headway.commands.plan.estimate.step_times import StepTimes
from headway.errors import SettingError
from headway.report.formatting import duration

MOST = 0.75  # up to this load of the prompts' steps the wait is within 10 %
STEEP = 0.9  # up to this load the rate is, as it hardly changes there
GATED = 0.7  # up to this rho the gated queue is within 10 %
ROUNDS = 30  # of a bisection
BEYOND = 1e12  # requests per second: beyond this rate the search gives up


@dataclass(frozen=True, slots=True)
class PromptWait:
    """The wait for the first token in nanoseconds, if a step has at most one prompt."""

    load: float  # share of the time in steps with a prompt
    queue: float  # from arrival until the prompt's step begins
    own: float  # in the prompt's own step
    decoding: float  # share of the time in steps without a prompt
    steady_state: SteadyState

    @property
    def ttft(self) -> float:
        return self.queue + self.own


def prompt_wait(steps: StepTimes, traffic: PlannedTraffic, rate: float) -> PromptWait:
    """The wait, by M/G/1 with vacations. rate: requests per nanosecond.

    The service S is a step with a prompt and the decoding rows. A request that arrives during a
    step without a prompt waits for the rest of that step, on average half. Raises SettingError if
    prompts arrive faster than steps can take them.
    """
    state = steady_state(steps, traffic, rate)
    services = steps.with_prompts(traffic.prompts, state.batch, traffic.context)
    load = rate * fmean(services)
    if load >= 1:
        raise SettingError(
            f"{rate * 1e9:.4g} prompts a second, each in a step of its own of "
            f"{fmean(services) / 1e6:.3g} ms, are more than the machine serves: "
            "lower the rate or shorten the prompts"
        )
    decoding = (1 - load) * (1 - _share_without_decodes(state))
    residual = rate * fmean(s * s for s in services) / 2
    if state.batch:
        residual += decoding * steps.decoding(max(1.0, state.batch), traffic.context) / 2
    return PromptWait(load, residual / (1 - load), fmean(services), decoding, state)


def _share_without_decodes(state: SteadyState) -> float:
    """Share of the time without decoding requests, if their number is negative binomial."""
    if not state.batch or state.rho <= 0:
        return 1.0 if not state.batch else 1 / (1 + state.batch)
    return float((1 - state.rho) ** (state.batch * (1 - state.rho) / state.rho))


def mean_ttft(machine: Machine, traffic: PlannedTraffic, rate: float) -> float:
    """Mean TTFT in nanoseconds, with the wake-up of a sleeping engine.

    rate: requests per nanosecond. Raises SettingError if it is too high.
    """
    steps = StepTimes(machine.cost, machine.depth)
    wait = prompt_wait(steps, traffic, rate)
    asleep = 1 - wait.load - wait.decoding
    return wait.ttft + asleep * steps.waking(rate) - steps.unseen(round(traffic.prompt))


def ttft_estimate(machine: Machine, traffic: PlannedTraffic) -> Estimate:
    """The mean TTFT in ms with one prompt a step. Raises SettingError if the rate is too high."""
    wait = prompt_wait(StepTimes(machine.cost, machine.depth), traffic, traffic.rate / 1e9)
    return Estimate(
        question="mean TTFT at this rate, one prompt a step",
        value=mean_ttft(machine, traffic, traffic.rate / 1e9) / 1e6,
        unit="ms",
        formula=(
            f"(rate x E[S^2] / 2 + half a decode step x its share of the time) / (1 - load) + "
            f"E[S]; S, a step with a prompt, is {duration(wait.own)}; load {wait.load:.2f}"
        ),
        assumes="Poisson; first come first served; one whole prompt a step, with the decoding rows",
        source="M/G/1: Pollaczek-Khinchine, with vacations (Doshi 1986)",
        holds=f"load up to {MOST}, prompts longer than the slots",
        outside=_outside(machine, wait, traffic, MOST),
    )


def gated_estimate(machine: Machine, traffic: PlannedTraffic) -> Estimate:
    """The mean TTFT in ms when all waiting prompts join the next step, as in `LLM`.

    Raises SettingError if the rate is too high.
    """
    steps = StepTimes(machine.cost, machine.depth)
    state = steady_state(steps, traffic, traffic.rate / 1e9)
    lone = steps.with_prompts(traffic.prompts, 0, traffic.context)
    left = (
        traffic.rate / 1e9 * fmean(s * s for s in lone) / 2
    )  # the rest of a prompt's step without answers
    wake = steps.waking(traffic.rate / 1e9)
    idle, alone = fmean(lone) + left + wake, _share_without_decodes(state)
    value = alone * idle + (1 - alone) * (state.met / 2 + state.joined)
    outside = binding_limit(machine, state)
    if not state.batch:
        outside = "answers have one token: see the groups of all waiting requests"
    elif state.rho > GATED:
        outside = f"rho is {state.rho:.2f}"
    elif (come := traffic.prompt * (1 + traffic.rate / 1e9 * state.met)) > STEP_TOKENS:
        outside = f"{come:,.0f} prompt tokens arrive in a cycle, and a step takes {STEP_TOKENS:,}"
    return Estimate(
        question="mean TTFT at this rate, all waiting prompts at once",
        value=(value - steps.unseen(round(traffic.prompt))) / 1e6,
        unit="ms",
        formula=(
            f"half the cycle under way ({duration(state.met)}) + the cycle with the request's own "
            f"prompt ({duration(state.joined)}); {alone:.0%} arrive while no request decodes and "
            "wait for prompts only"
        ),
        assumes="Poisson; all waiting prompts join the next step, whole, beside the decoding rows",
        source="a gated queue: each cycle serves the arrivals of the last one",
        holds=f"rho up to {GATED}, and the prompts of a cycle fit into a step",
        outside=outside,
    )


def _outside(machine: Machine, wait: PromptWait, traffic: PlannedTraffic, most: float) -> str:
    if wait.load > most:
        return f"the load is {wait.load:.2f}"
    if min(p for p, _ in traffic.lengths) <= machine.slots:
        return f"some prompts are no longer than the {machine.slots} slots: several share a step"
    return binding_limit(machine, wait.steady_state)


def capacity(machine: Machine, traffic: PlannedTraffic, ttft: int) -> float:
    """The highest rate per second with a mean TTFT within `ttft` nanoseconds.

    Raises SettingError if the budget is too small for a single request.
    """

    def within(rate: float) -> bool:
        try:
            return mean_ttft(machine, traffic, rate / 1e9) <= ttft
        except SettingError:
            return False

    steps = StepTimes(machine.cost, machine.depth)
    high = unstable_rate(steps, traffic)
    if not within(high * 1e-4):
        alone = fmean(steps.with_prompts(traffic.prompts, 0, traffic.context)) / 1e6
        raise SettingError(
            f"a mean TTFT of {ttft / 1e6:g} ms cannot be kept: a request alone takes "
            f"{alone:.3g} ms; ask for more, or shorten the prompts"
        )
    return highest_rate(within, high * 1e-4, high, ROUNDS)


def unstable_rate(steps: StepTimes, traffic: PlannedTraffic) -> float:
    """A rate per second without a steady state, at most twice the lowest such rate.

    Raises SettingError if every rate has a steady state.
    """
    high = 1e-3
    while is_stable(steps, traffic, high / 1e9):
        if (high := high * 2) > BEYOND:
            raise SettingError("by this cost file tokens cost nothing: calibrate again")
    return high


def budget_rate_estimate(machine: Machine, traffic: PlannedTraffic, ttft: int) -> Estimate:
    """The rate at which the mean TTFT reaches the budget of `ttft` nanoseconds.

    Raises SettingError if the budget is too small for a single request.
    """
    rate = capacity(machine, traffic, ttft)
    wait = prompt_wait(StepTimes(machine.cost, machine.depth), traffic, rate / 1e9)
    return Estimate(
        question=f"rate at which the mean TTFT reaches {ttft / 1e6:g} ms, one prompt a step",
        value=rate,
        unit="requests/s",
        formula=(
            f"the M/G/1 wait, inverted: at load {wait.load:.2f} a request waits "
            f"{wait.queue / wait.own:.1f} steps of a prompt, and twice that at load "
            f"{(1 + wait.load) / 2:.2f}, as 1 / (1 - load)"
        ),
        assumes="those of the mean TTFT; no limit on the TPOT",
        source="M/G/1: Pollaczek-Khinchine, by bisection",
        holds=f"load up to {STEEP}, prompts longer than the slots",
        outside=_outside(machine, wait, traffic, STEEP),
    )
