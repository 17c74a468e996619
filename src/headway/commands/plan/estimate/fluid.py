"""The fluid law of continuous batching: a step lengthens by the work that came during it."""

from dataclasses import dataclass
from statistics import fmean

from headway.commands.plan.estimate.checked_estimate import Estimate
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic
from headway.commands.plan.estimate.simulated_machine import Machine
from headway.commands.plan.estimate.step_times import StepTimes
from headway.errors import SettingError
from headway.report.formatting import duration

LEAST, MOST = 0.2, 0.7  # rho
SHORTEST = 20  # tokens of an answer
ROUNDS = 200


@dataclass(frozen=True, slots=True)
class SteadyState:
    """What a rate settles at. A cycle is a step in which all join who came during the last."""

    pace: float  # nanoseconds between two tokens of one answer
    rho: float  # 1 - the step without load / the mean cycle
    batch: float  # requests that decode, over all time
    held: float  # tokens in the KV memory, over all time
    entering: float  # tokens there of prompts that are being computed
    base: float  # nanoseconds of a step with one answer in it and nothing else
    met: float  # nanoseconds of the cycle that somebody who comes finds under way
    joined: float  # nanoseconds of the cycle in which its prompt is computed


def steady_state(steps: StepTimes, traffic: PlannedTraffic, rate: float) -> SteadyState:
    """The least pace that leads, by the batch that it makes, to itself. rate: per nanosecond.

    Raises SettingError where there is none.
    """
    pace = steps.decoding(1, traffic.context)
    for _ in range(ROUNDS):
        after, ahead = (
            _next_state(steps, traffic, rate, pace),
            _next_state(steps, traffic, rate, pace * 1.01),
        )
        if after is None or ahead is None:
            break
        slope = (ahead.pace - after.pace) / (0.01 * pace)
        if slope >= 1:
            break
        moved = pace + (after.pace - pace) / (1 - slope)
        if abs(moved - pace) < 1e-6 * pace:
            return after
        pace = moved
    raise SettingError(
        f"{rate * 1e9:.4g} requests a second are more than this machine serves at any batch: "
        "lower the rate, shorten the prompts or scale the tokens"
    )


def _next_state(
    steps: StepTimes, traffic: PlannedTraffic, rate: float, pace: float
) -> SteadyState | None:
    """By the batch that this pace makes; None: prompts come faster than they are computed.

    An answer meets the others as they are on average and itself: then the number who decode is
    negative binomial, and the law is exact for linear prices without prompts. With prompts a
    cycle T is D + the prompts of all who came during the last: on average D / (1 - r) with
    r = rate x a prompt's share s, and with variance rate T E[s^2] / (1 - r^2). The cycle that
    computes one's own prompt is long, so many come in it: the first gaps are longer than the
    rest, each by r times as much as the one before. What prompts cost once a step counts for each.
    """
    rows, context, count = 1 + rate * traffic.decodes * pace, traffic.context, traffic.decodes
    base, plain = steps.decoding(1, context), steps.decoding(rows, context)
    shares = [steps.with_prompt(p, rows, context) - plain for p in traffic.prompts]
    share, square = fmean(shares), fmean(s * s for s in shares)
    r = rate * share
    if r >= 1:
        return None
    cycle = plain / (1 - r)
    met = cycle + rate * square / (1 - r * r)
    joined = plain + share + r * met
    later = (joined - cycle) * r * (1 - r**count) / (1 - r) / count if count else 0.0
    made = cycle + later
    return SteadyState(
        pace=made,
        rho=1 - base / cycle,
        batch=rate * count * made,
        held=rate * traffic.held * made,
        entering=rate * traffic.prompt * joined,
        base=base,
        met=met,
        joined=joined,
    )


def is_stable(steps: StepTimes, traffic: PlannedTraffic, rate: float) -> bool:
    try:
        steady_state(steps, traffic, rate)
    except SettingError:
        return False
    return True


def binding_limit(machine: Machine, found: SteadyState) -> str:
    """Why the machine's limits would bind, which no law of this kind knows; empty: they do not.

    The spread is that of a negative binomial number of answers.
    """
    most = found.batch + 2 * (found.batch / max(1e-3, 1 - found.rho)) ** 0.5
    if most > machine.slots:
        return f"a batch of {found.batch:.0f}, at times {most:.0f}, meets the {machine.slots} slots"
    room = machine.num_blocks * machine.block_size
    if found.batch and (held := found.held * most / found.batch) > room:
        return f"{held:,.0f} tokens at times do not fit into a KV memory of {room:,}"
    return ""


def fluid_estimates(machine: Machine, traffic: PlannedTraffic) -> dict[str, Estimate]:
    """By figure: `tpot`, `batch` and `held`."""
    found = steady_state(StepTimes(machine.cost), traffic, traffic.rate / 1e9)
    outside = binding_limit(machine, found)
    if not LEAST <= round(found.rho, 3) <= MOST:
        outside = f"rho is {found.rho:.2f}"
    elif traffic.answer < SHORTEST:
        outside = f"answers of {traffic.answer:.1f} tokens are shorter than {SHORTEST}"

    def estimate(question: str, value: float, unit: str, formula: str) -> Estimate:
        return Estimate(
            question=question,
            value=value,
            unit=unit,
            formula=formula,
            assumes=(
                "Poisson; whole prompts join the next step, as many as wait; no limit of slots "
                "or memory; the cost model at the batch that it leads to itself"
            ),
            source="a fluid law; exact for decoding alone (Kelly 1979: insensitive queues)",
            holds=f"rho of {LEAST} to {MOST}, answers of {SHORTEST} tokens or more",
            outside=outside,
        )

    law = (
        f"{duration(found.base)} with one answer alone / (1 - rho), rho = {found.rho:.2f}, and "
        "what came during one's own prompt, spread over the answer"
    )
    return {
        "tpot": estimate("TPOT at this rate", found.pace / 1e6, "ms", law),
        "batch": estimate(
            "requests decoding at once", found.batch, "requests", "rate x (answer - 1) x TPOT"
        ),
        "held": estimate(
            "KV in use",
            found.held + found.batch * machine.block_size / 2 + found.entering,
            "tokens",
            "rate x (TPOT x E[prompt x answer + answer^2 / 2] + E[prompt] x the step that computes "
            "it), and half a block for each",
        ),
    }
