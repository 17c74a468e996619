"""Every question asked twice: of a formula, and of the real scheduler in virtual time."""

from collections.abc import Callable
from dataclasses import replace

from headway.commands.plan.estimate.batch_service import batch_service
from headway.commands.plan.estimate.burstiness import Burst, dispersion, scales
from headway.commands.plan.estimate.checked_estimate import Answered
from headway.commands.plan.estimate.fluid import fluid_estimates
from headway.commands.plan.estimate.memory import mean_batch, peak_batch
from headway.commands.plan.estimate.padding import padding_estimates
from headway.commands.plan.estimate.planned_traffic import SECOND, Work, steady
from headway.commands.plan.estimate.simulated_machine import (
    BLOCKS,
    ROOM,
    Machine,
    Served,
    default,
    highest,
    most,
    one_prompt,
    serve,
)
from headway.commands.plan.estimate.step_times import Steps
from headway.commands.plan.estimate.token_cost import cost_estimate, per_million
from headway.commands.plan.estimate.tpot import largest_batch
from headway.commands.plan.estimate.waiting import explosion, joining_estimate, ttft_estimate
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses, Static
from headway.core.policies.policies import Policies

ROWS = 240_000  # tokens of answers that a run simulates, about
FEWEST, MOST = 200, 5_000  # requests of a run
GROUPS = 600  # requests that padding is counted over, at most
PLAYED = 4  # times as many requests of a trace as of Poisson arrivals: else it is cut
TRIALS = 7  # of a bisection by simulation
LARGE = 1_000_000  # tokens of answers beyond which the simulator is not asked
CLIMB = 1_000  # times a guess, beyond which no rate is tried


def count(work: Work) -> int:
    """Requests that a run is given: many where answers are short."""
    return max(FEWEST, min(MOST, round(ROWS / work.answer)))


def memory_answers(machine: Machine, work: Work) -> list[Answered]:
    """Of all blocks that there is room for: those that its own slots use say nothing of it."""
    machine = replace(machine, num_blocks=machine.fit or machine.num_blocks)
    peak = peak_batch(work, machine.num_blocks, machine.block_size)
    mean = mean_batch(work, machine.num_blocks, machine.block_size)
    if max(peak.value, mean.value) * work.answer * 2 > LARGE:
        why = "not asked: so many answers at once would take the simulator minutes"
        return [Answered(peak, None, why), Answered(mean, None, why)]

    def fits(size: int) -> bool:
        run = _full(machine, work, size, size)
        return not run.preemptions and len({row.first_scheduled for row in run.requests}) == 1

    wide = max(2, round(2 * mean.value))
    run = _full(machine, work, wide, max(4 * wide, 200))
    running = run.crowded_mean(lambda row: row.running)
    return [
        Answered(
            peak,
            most(fits, max(1, int(peak.value))),
            "the most that began together and ran without a preemption",
        ),
        Answered(mean, running, f"mean number while others wait, {run.preemptions} preemptions"),
    ]


def _full(machine: Machine, work: Work, size: int, requests: int) -> Served:
    """More wait than ever fit."""
    policies = Policies(Continuous(size), step_tokens=ROOM)
    return serve(machine, policies, work.backlog(requests))


def pace_answer(machine: Machine, work: Work, tpot: int) -> Answered:
    """The simulator decodes with requests of one length, at the mean context."""
    estimate = largest_batch(Steps(machine.cost), work, tpot, machine.slots)
    if estimate.value * work.answer * 4 > LARGE or work.answer < 2:
        why = "not asked: so many answers at once would take the simulator minutes"
        return Answered(estimate, None, why if work.answer >= 2 else "answers have one token")
    answer = max(2, round(work.answer))
    one = steady(1.0, max(1, round(work.context - answer / 2)), answer)

    def within(size: int) -> bool:
        policies = Policies(Continuous(size), step_tokens=ROOM)
        roomy = replace(machine, num_blocks=BLOCKS)
        rows = serve(roomy, policies, one.backlog(size)).requests
        return sum(row.tpot for row in rows) <= tpot * len(rows)

    asked = "the most that began together and kept the mean TPOT"
    return Answered(estimate, most(within, int(estimate.value)), asked)


def padding_answers(
    machine: Machine, work: Work, size: int, buckets: tuple[int, ...]
) -> list[Answered]:
    joins: dict[str, Join] = {
        "longest": Static(size),
        "buckets": Static(size, buckets),
        "classes": LengthClasses(size, buckets, 0),
    }
    part = work.cut(max(size, GROUPS // size * size))
    roomy = replace(machine, num_blocks=BLOCKS)
    lengths = tuple((prompt, 1) for prompt, _ in part.lengths)
    if len(lengths) == 1:
        lengths *= size
    backlog = Work(part.name, lengths, 1.0).backlog(len(lengths))
    answers = []
    for way, estimate in padding_estimates([p for p, _ in lengths], size, buckets).items():
        run = serve(roomy, Policies(joins[way], step_tokens=ROOM), backlog)
        asked = f"padding that {joins[way].__class__.__name__} computed, {len(lengths)} requests"
        answers.append(Answered(estimate, 100 * run.padding, asked))
    return answers


def label_answer(machine: Machine, work: Work) -> Answered:
    prompt = round(work.prompt)
    estimate = batch_service(Steps(machine.cost), prompt, work.rate)
    policies = Policies(Dynamic(MOST, 0), step_tokens=ROOM)
    requests = steady(work.rate, prompt, 1).poisson(MOST, work.rate, machine.seed)
    run = serve(replace(machine, num_blocks=BLOCKS), policies, requests)
    return Answered(estimate, run.ttft / 1e6, f"Dynamic, window 0, {MOST} Poisson arrivals")


def flow_run(machine: Machine, work: Work) -> Served:
    """At its rate, as `LLM` serves."""
    requests = work.poisson(count(work), work.rate, machine.seed)
    return serve(machine, default(machine.slots), requests)


def flow_answers(machine: Machine, work: Work, run: Served) -> list[Answered]:
    laws = fluid_estimates(machine, work)
    asked = f"Continuous, whole prompts, {len(run.requests)} Poisson arrivals"
    total = machine.num_blocks
    found = {
        "tpot": run.tpot / 1e6,
        "batch": run.mean(lambda row: row.decodes),
        "held": run.mean(lambda row: total - row.free_blocks) * machine.block_size,
    }
    answers = [Answered(laws[name], value, asked) for name, value in found.items()]
    return [*answers, Answered(joining_estimate(machine, work), run.ttft / 1e6, asked)]


def wait_answer(machine: Machine, work: Work) -> Answered:
    """Raises SettingError where prompts come faster than one a step."""
    estimate = ttft_estimate(machine, work)
    requests = work.poisson(count(work), work.rate, machine.seed)
    run = serve(machine, one_prompt(machine.slots), requests)
    asked = f"Continuous, one whole prompt a step, {len(requests)} Poisson arrivals"
    return Answered(estimate, run.ttft / 1e6, asked)


def explosion_answer(machine: Machine, work: Work, ttft: int) -> Answered:
    estimate = explosion(machine, work, ttft)

    def within(rate: float) -> bool:
        requests = work.poisson(count(work), rate, machine.seed)
        return serve(machine, one_prompt(machine.slots), requests).ttft <= ttft

    found = _reached(within, estimate.value, 2.0)
    asked = f"the same by halving, {count(work)} Poisson arrivals each time"
    if found is None:
        asked = f"no rate breaks it: {count(work)} requests at once are too few to say"
    return Answered(estimate, found, asked)


def _reached(within: Callable[[float], bool], guess: float, reach: float) -> float | None:
    """The highest rate, looked for around a guess; 0 where a thousandth of it is too high.

    None where none is too high: finitely many, even all at once, keep within a large budget.
    """
    low = guess / reach
    while not within(low):
        low /= reach
        if low < guess / 1_000:
            return 0.0
    high = low * reach
    while within(high):
        low, high = high, high * reach
        if low > guess * CLIMB:
            return None
    return highest(within, low, high, TRIALS)


def burst_answer(machine: Machine, work: Work, ttft: int, planned: Answered) -> Burst:
    """planned: the answer to the explosion, of the same work.

    Raises SettingError where the part of the trace that is played has no span.
    """
    part = work.cut(round(PLAYED * count(work)))
    span = part.span / SECOND

    def within(rate: float) -> bool:
        return serve(machine, one_prompt(machine.slots), part.recorded(rate)).ttft <= ttft

    return Burst(
        requests=len(part.lengths),
        span=span,
        dispersion={scale: dispersion(work.times, scale) for scale in scales(ttft)},
        formula=planned.estimate.value,
        poisson=planned.simulated,
        recorded=_reached(within, planned.simulated or planned.estimate.value, 2.0),
    )


def money_answers(work: Work, price: float, run: Served, full: Answered | None) -> list[Answered]:
    """run: at the rate; full: the answer to the explosion, where there is a budget."""
    here = cost_estimate(price, work.rate, work.answer, f"at {work.rate:.4g} requests/s")
    asked = "the tokens of answers that ended in the middle of the run, by its seconds"
    answers = [Answered(here, per_million(price, run.tokens_per_second), asked)]
    if full is not None and full.simulated:
        most = cost_estimate(price, full.estimate.value, work.answer, "at the TTFT budget's rate")
        simulated = per_million(price, full.simulated * work.answer)
        answers.append(Answered(most, simulated, "at the rate that it reached itself"))
    return answers
