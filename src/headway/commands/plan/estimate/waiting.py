"""How long a prompt waits: M/G/1, and the load from which on it waits too long."""

from dataclasses import dataclass
from statistics import fmean

from headway.commands.plan.estimate.checked_estimate import Estimate
from headway.commands.plan.estimate.fluid import SteadyState, binding_limit, is_stable, steady_state
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic
from headway.commands.plan.estimate.simulated_machine import STEP_TOKENS, Machine, highest_rate
from headway.commands.plan.estimate.step_times import StepTimes
from headway.errors import SettingError
from headway.report.formatting import duration

MOST = 0.75  # load of the prompts' steps
STEEP = 0.9  # the same, where not the wait is asked for but the rate: there it hardly moves
GATED = 0.7  # rho
ROUNDS = 30  # of a bisection
BEYOND = 1e12  # requests per second


@dataclass(frozen=True, slots=True)
class PromptWait:
    """Of the first token, in nanoseconds, when each prompt has a step of its own."""

    load: float  # share of the time in steps with a prompt
    queue: float  # until its step begins
    own: float  # its step
    decoding: float  # share of the time in steps without one
    steady_state: SteadyState

    @property
    def ttft(self) -> float:
        return self.queue + self.own


def prompt_wait(steps: StepTimes, traffic: PlannedTraffic, rate: float) -> PromptWait:
    """rate: per nanosecond. Raises SettingError where prompts come faster than steps can take.

    A step with a prompt in it, decoding rows beside it, is the service S. Who comes while a step
    without a prompt runs waits for what is left of it: half of it.
    """
    found = steady_state(steps, traffic, rate)
    services = [steps.with_prompt(p, found.batch, traffic.context) for p in traffic.prompts]
    load = rate * fmean(services)
    if load >= 1:
        raise SettingError(
            f"{rate * 1e9:.4g} prompts a second, each in a step of its own of "
            f"{fmean(services) / 1e6:.3g} ms, never end: lower the rate or shorten the prompts"
        )
    decoding = (1 - load) * (1 - _share_without_decodes(found))
    residual = rate * fmean(s * s for s in services) / 2
    if found.batch:
        residual += decoding * steps.decoding(max(1.0, found.batch), traffic.context) / 2
    return PromptWait(load, residual / (1 - load), fmean(services), decoding, found)


def _share_without_decodes(found: SteadyState) -> float:
    """Share of the time in which nobody decodes: of a negative binomial number of them."""
    if not found.batch or found.rho <= 0:
        return 1.0 if not found.batch else 1 / (1 + found.batch)
    return float((1 - found.rho) ** (found.batch * (1 - found.rho) / found.rho))


def mean_ttft(machine: Machine, traffic: PlannedTraffic, rate: float) -> float:
    """Nanoseconds; rate: per nanosecond. Who finds the engine asleep also waits for its waking."""
    steps = StepTimes(machine.cost)
    found = prompt_wait(steps, traffic, rate)
    asleep = 1 - found.load - found.decoding
    return found.ttft + asleep * machine.cost.wake - steps.unseen(round(traffic.prompt))


def ttft_estimate(machine: Machine, traffic: PlannedTraffic) -> Estimate:
    found = prompt_wait(StepTimes(machine.cost), traffic, traffic.rate / 1e9)
    return Estimate(
        question="mean TTFT at this rate, one prompt a step",
        value=mean_ttft(machine, traffic, traffic.rate / 1e9) / 1e6,
        unit="ms",
        formula=(
            f"(rate x E[S^2] / 2 + half a decode step x its share of the time) / (1 - load) + "
            f"E[S]; S, a step with a prompt, is {duration(found.own)}; load {found.load:.2f}"
        ),
        assumes="Poisson; first come first served; a whole prompt a step, among the decoding rows",
        source="M/G/1: Pollaczek-Khinchine, with vacations (Doshi 1986)",
        holds=f"load up to {MOST}, prompts longer than the slots",
        outside=_outside(machine, found, traffic, MOST),
    )


def gated_estimate(machine: Machine, traffic: PlannedTraffic) -> Estimate:
    """As `LLM` serves."""
    steps = StepTimes(machine.cost)
    found = steady_state(steps, traffic, traffic.rate / 1e9)
    lone = [steps.with_prompt(p, 0, traffic.context) for p in traffic.prompts]
    left = traffic.rate / 1e9 * fmean(s * s for s in lone) / 2  # of a prompt's step without answers
    idle, alone = fmean(lone) + left + machine.cost.wake, _share_without_decodes(found)
    value = alone * idle + (1 - alone) * (found.met / 2 + found.joined)
    outside = binding_limit(machine, found)
    if not found.batch:
        outside = "answers of one token: see the groups of all that wait"
    elif found.rho > GATED:
        outside = f"rho is {found.rho:.2f}"
    elif (come := traffic.prompt * (1 + traffic.rate / 1e9 * found.met)) > STEP_TOKENS:
        outside = f"{come:,.0f} prompt tokens come in a cycle, a step takes {STEP_TOKENS:,}"
    return Estimate(
        question="mean TTFT at this rate, all that wait at once",
        value=(value - steps.unseen(round(traffic.prompt))) / 1e6,
        unit="ms",
        formula=(
            f"half the cycle under way ({duration(found.met)}) + the one with one's own prompt "
            f"({duration(found.joined)}); {alone:.0%} find no answer under way and "
            "wait for prompts only"
        ),
        assumes="Poisson; whole prompts join the next step, as many as wait, among decoding rows",
        source="a gated queue: each cycle serves who came during the last one",
        holds=f"rho up to {GATED}, and no more prompts in a cycle than fit into a step",
        outside=outside,
    )


def _outside(machine: Machine, found: PromptWait, traffic: PlannedTraffic, most: float) -> str:
    if found.load > most:
        return f"the load is {found.load:.2f}"
    if min(p for p, _ in traffic.lengths) <= machine.slots:
        return f"some prompts are no longer than the {machine.slots} slots: several share a step"
    return binding_limit(machine, found.steady_state)


def capacity(machine: Machine, traffic: PlannedTraffic, ttft: int) -> float:
    """Requests per second up to which the mean TTFT stays within so many nanoseconds."""

    def within(rate: float) -> bool:
        try:
            return mean_ttft(machine, traffic, rate / 1e9) <= ttft
        except SettingError:
            return False

    steps = StepTimes(machine.cost)
    high = unstable_rate(steps, traffic)
    if not within(high * 1e-4):
        alone = fmean(steps.with_prompt(p, 0, traffic.context) for p in traffic.prompts) / 1e6
        raise SettingError(
            f"a mean TTFT of {ttft / 1e6:g} ms cannot be kept: alone it is {alone:.3g} ms; ask for "
            "more, or shorten the prompts"
        )
    return highest_rate(within, high * 1e-4, high, ROUNDS)


def unstable_rate(steps: StepTimes, traffic: PlannedTraffic) -> float:
    """Requests per second that no batch serves any more, to a factor of two."""
    high = 1e-3
    while is_stable(steps, traffic, high / 1e9):
        if (high := high * 2) > BEYOND:
            raise SettingError("this cost file says that tokens cost nothing: calibrate again")
    return high


def budget_rate_estimate(machine: Machine, traffic: PlannedTraffic, ttft: int) -> Estimate:
    """Where the waits reach the budget."""
    rate = capacity(machine, traffic, ttft)
    found = prompt_wait(StepTimes(machine.cost), traffic, rate / 1e9)
    return Estimate(
        question=f"rate at which the mean TTFT reaches {ttft / 1e6:g} ms, one prompt a step",
        value=rate,
        unit="requests/s",
        formula=(
            f"the M/G/1 wait, inverted: at load {found.load:.2f} it waits "
            f"{found.queue / found.own:.1f} steps of a prompt; twice that from load "
            f"{(1 + found.load) / 2:.2f} on, as 1 / (1 - load)"
        ),
        assumes="as the mean TTFT; the TPOT has no limit",
        source="M/G/1: Pollaczek-Khinchine, by bisection",
        holds=f"load up to {STEEP}, prompts longer than the slots",
        outside=_outside(machine, found, traffic, STEEP),
    )
