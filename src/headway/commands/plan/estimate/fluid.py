"""The fluid law of continuous batching: each step adds the work that arrived during the last."""

from dataclasses import dataclass
from statistics import fmean

from headway.commands.plan.estimate.checked_estimate import Estimate
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic
from headway.commands.plan.estimate.simulated_machine import Machine
from headway.commands.plan.estimate.step_times import StepTimes
from headway.errors import SettingError
from headway.report.formatting import duration

LEAST, MOST = 0.2, 0.7  # the range of rho in which the law is within 10 %
SHORTEST = 20  # the fewest answer tokens for which the law is within 10 %
ROUNDS = 200
FARTHEST = 1_000  # times the pace of a request alone: no steady state is looked for beyond


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The steady state at a rate. In each cycle (one step) the arrivals of the last cycle join."""

    pace: float  # nanoseconds between two tokens of one answer
    rho: float  # 1 - a step without load / the mean cycle
    batch: float  # mean number of decoding requests
    held: float  # mean number of KV tokens of decoding requests
    entering: float  # mean number of KV tokens of prompts being computed
    base: float  # nanoseconds of a step that decodes one row
    met: float  # nanoseconds of the cycle running when a request arrives
    joined: float  # nanoseconds of the cycle that computes the request's prompt


def steady_state(steps: StepTimes, traffic: PlannedTraffic, rate: float) -> SteadyState:
    """The steady state with the smallest pace that reproduces itself through its batch.

    Where a larger batch makes tokens cheaper, as with experts that are read once for all, the pace
    first grows faster than it is given. Then it is doubled, to look for a steady state beyond.

    rate: requests per nanosecond. Raises SettingError if the rate is too high for a steady state.
    """
    pace = alone = steps.decoding(1, traffic.context)
    for _ in range(ROUNDS):
        after, ahead = (
            _next_state(steps, traffic, rate, pace),
            _next_state(steps, traffic, rate, pace * 1.01),
        )
        if after is None or ahead is None:
            break
        slope = (ahead.pace - after.pace) / (0.01 * pace)
        if slope < 1:
            moved = max(alone, pace + (after.pace - pace) / (1 - slope))
        elif pace > FARTHEST * alone:
            break
        else:
            moved = 2 * pace if after.pace > pace else after.pace
        if abs(moved - pace) < 1e-6 * pace:
            return after
        pace = moved
    raise SettingError(
        f"{rate * 1e9:.4g} requests a second are more than this machine can serve with any batch: "
        "lower the rate, shorten the prompts, or divide a trace's tokens by --token-scale"
    )


def _next_state(
    steps: StepTimes, traffic: PlannedTraffic, rate: float, pace: float
) -> SteadyState | None:
    """The state that the batch at this pace leads to; None: prompts arrive faster than computed.

    A decoding request shares its steps with itself and the mean number of others. The number of
    decoding requests is then negative binomial, and the law is exact for linear prices without
    prompts. With prompts, a cycle T is the decode time D plus the prompts that arrived during the
    last cycle. Its mean is D / (1 - r), where r = rate x a prompt's share s, and its variance is
    rate T E[s^2] / (1 - r^2). The cycle that computes a request's own prompt is long, so more
    prompts arrive during it. The first gaps of the answer are therefore longer, each by r times
    the excess of the gap before. A prompt's fixed price per step is charged to every prompt.
    """
    rows, context, count = 1 + rate * traffic.decodes * pace, traffic.context, traffic.decodes
    base, plain = steps.decoding(1, context), steps.decoding(rows, context)
    shares = [each - plain for each in steps.with_prompts(traffic.prompts, rows, context)]
    share, square = fmean(shares), fmean(s * s for s in shares)
    r = rate * share
    if r >= 1:
        return None
    cycle = plain / (1 - r)
    met = cycle + rate * square / (1 - r * r)
    joined = plain + share + r * met
    later = (joined - cycle) * r * (1 - r**count) / (1 - r) / count if count else 0.0
    gap = cycle + later
    return SteadyState(
        pace=gap,
        rho=1 - base / cycle,
        batch=rate * count * gap,
        held=rate * traffic.held * gap,
        entering=rate * traffic.prompt * joined,
        base=base,
        met=met,
        joined=joined,
    )


def is_stable(steps: StepTimes, traffic: PlannedTraffic, rate: float) -> bool:
    """Whether there is a steady state at this rate, in requests per nanosecond."""
    try:
        steady_state(steps, traffic, rate)
    except SettingError:
        return False
    return True


def binding_limit(machine: Machine, state: SteadyState) -> str:
    """The limit of slots or memory that would bind, in words; empty if none would.

    The fluid law knows no such limits. The peak batch is two standard deviations above the mean of
    a negative binomial number of decoding requests.
    """
    most = state.batch + 2 * (state.batch / max(1e-3, 1 - state.rho)) ** 0.5
    if most > machine.slots:
        return f"a batch of {state.batch:.0f}, at times {most:.0f}, meets the {machine.slots} slots"
    room = machine.num_blocks * machine.block_size
    if state.batch and (held := state.held * most / state.batch) > room:
        return f"{held:,.0f} tokens at times do not fit into a KV memory of {room:,}"
    return ""


def fluid_estimates(machine: Machine, traffic: PlannedTraffic) -> dict[str, Estimate]:
    """The estimates by name: `tpot` in ms, `batch` in requests and `held` in tokens.

    Raises SettingError if there is no steady state.
    """
    state = steady_state(StepTimes(machine.cost, machine.depth), traffic, traffic.rate / 1e9)
    outside = binding_limit(machine, state)
    if not LEAST <= round(state.rho, 3) <= MOST:
        outside = f"rho is {state.rho:.2f}"
    elif traffic.answer < SHORTEST:
        outside = f"answers have {traffic.answer:.1f} tokens, fewer than {SHORTEST}"

    def estimate(question: str, value: float, unit: str, formula: str) -> Estimate:
        return Estimate(
            question=question,
            value=value,
            unit=unit,
            formula=formula,
            assumes=(
                "Poisson; all waiting prompts join the next step, whole; no limit of slots or "
                "memory; step times at the batch of the steady state"
            ),
            source="a fluid law; exact for decoding alone (Kelly 1979: insensitive queues)",
            holds=f"rho of {LEAST} to {MOST}, answers of {SHORTEST} tokens or more",
            outside=outside,
        )

    law = (
        f"{duration(state.base)} with one answer alone / (1 - rho), rho = {state.rho:.2f}, and "
        "the arrivals during the request's own prompt, spread over the answer"
    )
    return {
        "tpot": estimate("TPOT at this rate", state.pace / 1e6, "ms", law),
        "batch": estimate(
            "requests decoding at once", state.batch, "requests", "rate x (answer - 1) x TPOT"
        ),
        "held": estimate(
            "KV in use",
            state.held + state.batch * machine.block_size / 2 + state.entering,
            "tokens",
            "rate x (TPOT x E[prompt x answer + answer^2 / 2] + E[prompt] x the step that computes "
            "it), and half a block for each request",
        ),
    }
