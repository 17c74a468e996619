"""The questions of a plan, each answered by a formula and by the real scheduler in virtual time."""

from collections.abc import Callable
from dataclasses import replace

from headway.commands.plan.estimate.batch_service import batch_service
from headway.commands.plan.estimate.burstiness import Burstiness, dispersion, windows
from headway.commands.plan.estimate.checked_estimate import CheckedEstimate, Estimate
from headway.commands.plan.estimate.fluid import fluid_estimates
from headway.commands.plan.estimate.memory import mean_batch, peak_batch
from headway.commands.plan.estimate.padding import padding_estimates
from headway.commands.plan.estimate.planned_traffic import SECOND, PlannedTraffic, steady
from headway.commands.plan.estimate.simulated_machine import (
    BLOCKS,
    ROOM,
    Machine,
    SimulatedRun,
    highest_rate,
    largest_count,
    most_served,
    one_prompt,
    serve,
    whole_prompts,
)
from headway.commands.plan.estimate.step_times import StepTimes
from headway.commands.plan.estimate.token_cost import cost_estimate, per_million
from headway.commands.plan.estimate.tpot import largest_batch
from headway.commands.plan.estimate.waiting import (
    budget_rate_estimate,
    gated_estimate,
    ttft_estimate,
)
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses, Static
from headway.core.policies.policies import Policies

ROWS = 240_000  # answer tokens that a run simulates, approximately
FEWEST, MOST = 200, 5_000  # requests of a run
GROUPS = 600  # the most requests over which padding is measured
PLAYED = 4  # the most requests of a trace, as a multiple of the Poisson requests
TRIALS = 7  # steps of a bisection by simulation
LATE = 1.5  # times the formula's TTFT: beyond this the machine may be overloaded
LARGE = 1_000_000  # answer tokens: beyond this nothing is simulated
MANY = 50_000  # requests at once (some seconds): beyond this nothing is simulated
LONG = 20_000_000  # prompt tokens at once (half a gigabyte): beyond this nothing is simulated
TOO_MANY = "not simulated: so many requests at once would take the simulator minutes or gigabytes"


def count(traffic: PlannedTraffic) -> int:
    """The number of requests in a simulated run; shorter answers allow more."""
    return max(FEWEST, min(MOST, round(ROWS / traffic.answer)))


def saturation(machine: Machine, policies: Policies, traffic: PlannedTraffic) -> float:
    """Requests per second that the machine can serve at most, however long they wait."""
    most = min(LARGE / 3 / traffic.answer, LONG / 2 / traffic.prompt)
    wanted = max(FEWEST, machine.slots, min(count(traffic), len(traffic.lengths)))
    full = -(-wanted // machine.slots) * machine.slots  # else a batch at the end is not full
    return most_served(machine, policies, traffic, max(1, min(full, round(most))))


def check_memory(machine: Machine, traffic: PlannedTraffic) -> list[CheckedEstimate]:
    """The largest batches, in requests, that fit into all the blocks beside the weights."""
    machine = replace(machine, num_blocks=machine.fit or machine.num_blocks)
    peak = peak_batch(traffic, machine.num_blocks, machine.block_size)
    mean = mean_batch(traffic, machine.num_blocks, machine.block_size)
    wide = max(2, round(2 * mean.value))
    is_large = max(peak.value, mean.value) * traffic.answer * 2 > LARGE
    if is_large or _are_too_many(4 * wide, traffic.prompt):
        return [CheckedEstimate(peak, None, TOO_MANY), CheckedEstimate(mean, None, TOO_MANY)]

    def fits(size: int) -> bool:
        run = _full(machine, traffic, size, size)
        return not run.preemptions and len({row.first_scheduled for row in run.requests}) == 1

    run = _full(machine, traffic, wide, max(4 * wide, 200))
    running = run.crowded_mean(lambda row: row.running)
    return [
        CheckedEstimate(
            peak,
            largest_count(fits, max(1, int(peak.value))),
            "the most that started together and ran without a preemption",
        ),
        CheckedEstimate(
            mean, running, f"mean number while others wait, {run.preemptions} preemptions"
        ),
    ]


def _are_too_many(requests: int, prompt: float) -> bool:
    """Whether this many requests at once take too long to simulate. prompt: tokens of each.

    Callers check the answers separately, as each answer token is a row of a step.
    """
    return requests > MANY or requests * prompt > LONG


def _full(machine: Machine, traffic: PlannedTraffic, size: int, requests: int) -> SimulatedRun:
    """A run in which all requests arrive at once and at most `size` run together."""
    policies = Policies(Continuous(size), step_tokens=ROOM)
    return serve(machine, policies, traffic.backlog(requests))


def check_tpot(machine: Machine, traffic: PlannedTraffic, tpot: int) -> CheckedEstimate:
    """The largest batch within a TPOT of `tpot` nanoseconds.

    The simulator decodes requests of one length at the mean context. Raises SettingError if a
    single request is too slow.
    """
    estimate = largest_batch(StepTimes(machine.cost, machine.depth), traffic, tpot, machine.slots)
    if traffic.answer < 2:
        return CheckedEstimate(estimate, None, "answers have one token")
    is_large = estimate.value * traffic.answer * 4 > LARGE
    if is_large or _are_too_many(2 * round(estimate.value), traffic.context):
        return CheckedEstimate(estimate, None, TOO_MANY)
    answer = max(2, round(traffic.answer))
    one = steady(1.0, max(1, round(traffic.context - answer / 2)), answer)

    def within(size: int) -> bool:
        policies = Policies(Continuous(size), step_tokens=ROOM)
        roomy = replace(machine, num_blocks=BLOCKS)
        rows = serve(roomy, policies, one.backlog(size)).requests
        return sum(row.tpot for row in rows) <= tpot * len(rows)

    method = "the most that started together and kept the mean TPOT"
    return CheckedEstimate(estimate, largest_count(within, int(estimate.value)), method)


def check_padding(
    machine: Machine, traffic: PlannedTraffic, size: int, buckets: tuple[int, ...]
) -> list[CheckedEstimate]:
    """The padding of groups of `size` in percent: to the longest and, if given, by buckets."""
    joins: dict[str, Join] = {
        "longest": Static(size),
        "buckets": Static(size, buckets),
        "classes": LengthClasses(size, buckets, 0),
    }
    part = traffic.cut(max(size, GROUPS // size * size))
    roomy = replace(machine, num_blocks=BLOCKS)
    lengths = tuple((prompt, 1) for prompt, _ in part.lengths)
    if len(lengths) == 1:
        lengths *= size
    backlog = PlannedTraffic(part.name, lengths, 1.0).backlog(len(lengths))
    answers = []
    for way, estimate in padding_estimates([p for p, _ in lengths], size, buckets).items():
        run = serve(roomy, Policies(joins[way], step_tokens=ROOM), backlog)
        method = f"padding that {joins[way].__class__.__name__} computed, {len(lengths)} requests"
        answers.append(CheckedEstimate(estimate, 100 * run.padding, method))
    return answers


def check_one_token(machine: Machine, traffic: PlannedTraffic) -> CheckedEstimate:
    """The mean time to a one-token answer in ms. Raises SettingError if the rate is too high."""
    prompt = round(traffic.prompt)
    steps = StepTimes(machine.cost, machine.depth)
    estimate = batch_service(steps, prompt, traffic.rate, machine.slots)
    policies = Policies(Dynamic(MOST, 0), step_tokens=ROOM)
    requests = steady(traffic.rate, prompt, 1).poisson(MOST, traffic.rate, machine.seed)
    run = serve(replace(machine, num_blocks=BLOCKS), policies, requests)
    method = f"Dynamic, window 0, {MOST} Poisson arrivals"
    return CheckedEstimate(_of_one_step(machine, estimate), run.ttft / 1e6, method)


def _of_one_step(machine: Machine, estimate: Estimate) -> Estimate:
    """The estimate of a wait, marked where several steps are in flight: a request then waits for
    one that is decided already, too."""
    if machine.depth == 1 or estimate.outside:
        return estimate
    return replace(estimate, outside=f"{machine.depth} steps are in flight; the formula knows one")


def run_at_rate(machine: Machine, traffic: PlannedTraffic) -> SimulatedRun:
    """A simulated run at the traffic's rate with Poisson arrivals and the policies of `LLM`."""
    requests = traffic.poisson(count(traffic), traffic.rate, machine.seed)
    return serve(machine, whole_prompts(machine.slots), requests)


def check_at_rate(
    machine: Machine, traffic: PlannedTraffic, run: SimulatedRun
) -> list[CheckedEstimate]:
    """The TPOT, the batch, the KV in use and the mean TTFT at the rate; run: the simulated run.

    Raises SettingError if the rate is too high.
    """
    laws = fluid_estimates(machine, traffic)
    method = f"Continuous, whole prompts, {len(run.requests)} Poisson arrivals"
    total = machine.num_blocks
    figures = {
        "tpot": run.tpot / 1e6,
        "batch": run.mean(lambda row: row.decodes),
        "held": run.mean(lambda row: total - row.free_blocks) * machine.block_size,
    }
    answers = [CheckedEstimate(laws[name], value, method) for name, value in figures.items()]
    wait = _of_one_step(machine, gated_estimate(machine, traffic))
    return [*answers, CheckedEstimate(wait, run.ttft / 1e6, method)]


def overloaded(machine: Machine, traffic: PlannedTraffic, run: SimulatedRun) -> float:
    """Requests per second that the machine serves, if the rate is more than that; else 0.0.

    run: the simulated run at the rate. Its requests end even in overload, because they are few.
    """
    if run.ttft <= LATE * gated_estimate(machine, traffic).value * 1e6:
        return 0.0
    most = saturation(machine, whole_prompts(machine.slots), traffic)
    return most if most < traffic.rate else 0.0


def check_ttft(machine: Machine, traffic: PlannedTraffic) -> CheckedEstimate:
    """The mean TTFT in ms with one prompt a step. Raises SettingError if the rate is too high."""
    estimate = _of_one_step(machine, ttft_estimate(machine, traffic))
    requests = traffic.poisson(count(traffic), traffic.rate, machine.seed)
    run = serve(machine, one_prompt(machine.slots), requests)
    method = f"Continuous, one whole prompt a step, {len(requests)} Poisson arrivals"
    return CheckedEstimate(estimate, run.ttft / 1e6, method)


def check_budget_rate(machine: Machine, traffic: PlannedTraffic, ttft: int) -> CheckedEstimate:
    """The highest rate with a mean TTFT within `ttft` nanoseconds, one prompt a step.

    Raises SettingError if the budget is too small for a single request.
    """
    estimate = _of_one_step(machine, budget_rate_estimate(machine, traffic, ttft))

    def within(rate: float) -> bool:
        requests = traffic.poisson(count(traffic), rate, machine.seed)
        return serve(machine, one_prompt(machine.slots), requests).ttft <= ttft

    most = saturation(machine, one_prompt(machine.slots), traffic)
    highest = _search_rate(within, estimate.value, most)
    method = f"the same by bisection, {count(traffic)} Poisson arrivals each time"
    if highest == most:
        method = "what it serves while others always wait: no rate up to that breaks the budget"
    return CheckedEstimate(estimate, highest, method)


def _search_rate(within: Callable[[float], bool], guess: float, most: float) -> float:
    """Search for the highest rate within the budget around a guess, and at most `most`.

    Above what the machine serves, the wait grows without end. Yet the few requests of a run may
    keep a large budget there, so their mean TTFT does not tell. 0: even a thousandth of the guess
    is too high.
    """
    low = min(guess, most) / 2
    while not within(low):
        low /= 2
        if low < guess / 1_000:
            return 0.0
    high = min(2 * low, most)
    while within(high):
        if high >= most:
            return most
        low, high = high, min(2 * high, most)
    return highest_rate(within, low, high, TRIALS)


def measure_burstiness(
    machine: Machine, traffic: PlannedTraffic, ttft: int, planned: CheckedEstimate
) -> Burstiness:
    """The highest rates within a TTFT budget in nanoseconds, with and without bursts.

    planned: the highest rate of the same traffic with Poisson arrivals. Raises SettingError if the
    simulated part of the trace has no span.
    """
    part = traffic.cut(round(PLAYED * count(traffic)))
    span = part.span / SECOND

    policies = one_prompt(machine.slots)

    def within(rate: float) -> bool:
        return serve(machine, policies, part.recorded(rate)).ttft <= ttft

    guess = planned.simulated or planned.estimate.value
    most = saturation(machine, policies, part)
    return Burstiness(
        requests=len(part.lengths),
        span=span,
        dispersion={scale: dispersion(traffic.times, scale) for scale in windows(ttft)},
        formula=planned.estimate.value,
        poisson=planned.simulated or 0.0,
        recorded=_search_rate(within, guess, most),
    )


def check_cost(
    traffic: PlannedTraffic, price: float, run: SimulatedRun, full: CheckedEstimate | None
) -> list[CheckedEstimate]:
    """The price of a million answer tokens, at the rate and at the highest rate.

    run: the simulated run at the rate. full: the highest rate within the budget; None: no budget.
    """
    here = cost_estimate(price, traffic.rate, traffic.answer, f"at {traffic.rate:.4g} requests/s")
    method = "answer tokens per second in the middle of the run"
    answers = [CheckedEstimate(here, per_million(price, run.tokens_per_second), method)]
    if full is not None and full.simulated:
        most = cost_estimate(
            price, full.estimate.value, traffic.answer, "at the TTFT budget's rate"
        )
        simulated = per_million(price, full.simulated * traffic.answer)
        answers.append(CheckedEstimate(most, simulated, "at the simulated highest rate"))
    return answers
