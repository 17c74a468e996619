"""What does the scheduler cost per step, in pure Python?

Steady decoding at 64, 256 and 1,024 running sequences with the prefix cache on: schedule() plus
commit(), without an executor. Beside it, in the same run, a calibration loop (a million additions),
because absolute times depend on the machine. Also timed: admitting a cold prompt of 1,000 tokens:
apply(), the schedule() that joins it, and the commit() that publishes its blocks.

The aims are 0.15, 0.5 and 2 ms a step, and 120 microseconds for the prompt. vLLM 0.32's scheduler
took 0.80, 3.1 and 15.9 ms and 286 microseconds on a similar machine.

And by budgets: the same step at 256 running sequences whose lanes have budgets, over the step of
first come, with no request waiting and with 200 waiting for a slot. The aim is 1.5. `kept`: 16
requests run and 240 wait, and one of the 16 belongs to a lane without a budget, which keeps this
slot. `filler`: a third of the running requests and all waiting ones have no budget. `no_memory`: no
running or waiting request has one, and by budgets there are 16 slots more, but memory will not
suffice.
"""

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks.report import Figure, finish, parser
from headway.core.batch import Batch, Output, Want
from headway.core.commands import Add, Retune
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.memory import Now
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.strategies.registry import by_budgets

CONTEXT, PROMPT, BLOCK, STEPS, REPEATS = 300, 1_000, 16, 60, 7
SEED = 0
SLOTS, WAITING, MOST = 256, (0, 200), 1.5
LANES = (
    Lane("chat", Budget(ttft=3 * 10**9, tpot=80 * 10**6)),
    Lane("code", Budget(ttft=10**9, tpot=50 * 10**6)),
)
OFFLINE = Lane("offline", priority=2)
KEPT = (*LANES, replace(OFFLINE, slots=Share(least=1)))
FEW, CROWD, SPARE = 16, 240, 16
LONG = 12_000  # tokens of a prompt that needs more blocks than are free
ANSWER, EXPECTED = 1_500, 1_400  # tokens
COST = StepCost.of(7_000_000, per_token=35_000, per_pair=47)  # about an 8B model on an H100


def calibration() -> float:
    """Milliseconds of a million additions."""
    began = time.perf_counter()
    total = 0
    for i in range(1_000_000):
        total += i
    return (time.perf_counter() - began) * 1e3


def answered(batch: Batch) -> Output:
    return Output(tuple([(7,) if row.want is Want.LAST else () for row in batch.rows]))


def decoding(running: int, slots: int = 0) -> Scheduler:
    """`running` sequences, their prompts computed. slots: for them and others; 0: just for them."""
    policies = Policies(join=Continuous(slots or running), step_tokens=8_192)
    settings = Settings(running * 64, BLOCK, policies=policies)
    return _decoding(settings, settings.lanes * running)


def with_budgets(policies: Policies, waiting: int, kept: bool = False) -> Scheduler:
    """As many sequences as there are slots, in lanes with budgets, and `waiting` others that wait.
    kept: one running sequence has no budget and keeps its slot."""
    slots = policies.slots
    settings = Settings(slots * 128, BLOCK, KEPT if kept else LANES, policies, cost=COST)
    timed = [LANES[i % len(LANES)] for i in range(slots - kept)]
    scheduler = _decoding(settings, [*timed, KEPT[-1]] if kept else timed)
    scheduler.apply(_requests("w", waiting, LANES), 0)
    return scheduler


def with_filler(policies: Policies, lanes: Sequence[Lane]) -> Scheduler:
    """Equally many sequences of these lanes run; others, without a budget, wait. Each is expected
    to reach 1,700 tokens, and memory is for 1,024 of each: the running ones are not asked."""
    known = (*LANES, OFFLINE)
    settings = Settings(SLOTS * 64, BLOCK, known, replace(policies, memory=Now()), cost=COST)
    scheduler = _decoding(settings, [lanes[i % len(lanes)] for i in range(SLOTS)])
    scheduler.apply([Retune(1, policies, known), *_requests("w", WAITING[1], [OFFLINE])], 0)
    return scheduler


def without_blocks(policies: Policies) -> Scheduler:
    """FEW sequences run, and CROWD others with long prompts wait for blocks."""
    settings = Settings(FEW * 64, BLOCK, LANES, policies, cost=COST)
    scheduler = _decoding(settings, [LANES[i % len(LANES)] for i in range(FEW)])
    scheduler.apply(_requests("w", CROWD, LANES, LONG), 0)
    return scheduler


def _requests(name: str, count: int, lanes: Sequence[Lane], size: int = CONTEXT) -> list[Add]:
    draw = random.Random(SEED)
    prompts = [tuple(draw.randrange(50_000) for _ in range(size)) for _ in range(count)]
    return [
        Add(Request(f"{name}{i}", prompt, ANSWER, 0, lanes[i % len(lanes)].name, expected=EXPECTED))
        for i, prompt in enumerate(prompts)
    ]


def _decoding(settings: Settings, lanes: Sequence[Lane]) -> Scheduler:
    """One sequence of each lane, as often as the lane is named."""
    scheduler, running = Scheduler(settings), len(lanes)
    scheduler.apply(_requests("r", running, lanes), 0)
    members = scheduler.roster.running
    while len(members) < running or any(s.pending > 1 for s in members.values()):
        batch = scheduler.schedule(0)
        scheduler.commit(batch, answered(batch), 1_000)
    return scheduler


def step(scheduler: Scheduler) -> float:
    """Median milliseconds of schedule() and commit() over many steps; the output is not timed."""
    times = []
    for now in range(STEPS):
        began = time.perf_counter()
        batch = scheduler.schedule(now)
        half = time.perf_counter()
        output = answered(batch)
        again = time.perf_counter()
        scheduler.commit(batch, output, now)
        times.append(time.perf_counter() - again + half - began)
        assert len(batch.rows) == len(scheduler.roster.running)
    return median(times) * 1e3


def admitting(scheduler: Scheduler) -> float:
    """Median microseconds that a cold prompt adds beside an otherwise idle scheduler."""
    draw, times = random.Random(SEED + 1), []
    for i in range(40):
        prompt = tuple(draw.randrange(50_000) for _ in range(PROMPT))
        request = Request(f"cold{i}", prompt, 1, 0)
        began = time.perf_counter()
        scheduler.apply([Add(request)], 0)
        batch = scheduler.schedule(0)
        half = time.perf_counter()
        output = answered(batch)
        again = time.perf_counter()
        (event,) = scheduler.commit(batch, output, 1)
        times.append(time.perf_counter() - again + half - began)
        assert event.finish
    return median(times) * 1e6


def main() -> int:
    parser(__doc__).parse_args()
    sizes = (64, 256, 1_024)
    schedulers = {size: decoding(size) for size in sizes}
    idle = Scheduler(Settings(20_000, BLOCK, policies=Policies(step_tokens=8_192)))
    loops, steps, cold = list[float](), {size: list[float]() for size in sizes}, list[float]()
    first_come = Policies(Continuous(SLOTS), chunk=Fixed(256), step_tokens=SLOTS + 256)
    pairs = {
        f"{SLOTS}_{n}_waiting": (with_budgets(first_come, n), with_budgets(by_budgets(SLOTS), n))
        for n in WAITING
    }
    few = Policies(Continuous(FEW), chunk=Fixed(256), step_tokens=FEW + 256)
    pairs[f"{FEW}_{CROWD}_kept"] = (
        with_budgets(few, CROWD, kept=True),
        with_budgets(by_budgets(FEW), CROWD, kept=True),
    )
    pairs[f"{SLOTS}_filler"] = (
        with_filler(first_come, (*LANES, OFFLINE)),
        with_filler(by_budgets(SLOTS), (*LANES, OFFLINE)),
    )
    pairs[f"{SLOTS}_no_memory"] = (
        with_filler(first_come, [OFFLINE]),
        with_filler(by_budgets(SLOTS + SPARE), [OFFLINE]),
    )
    pairs[f"{FEW}_{CROWD}_no_blocks"] = (
        without_blocks(first_come),
        without_blocks(by_budgets(SLOTS)),
    )
    ratios = {name: list[float]() for name in pairs}
    for _ in range(REPEATS):  # interleaved, so that a slow moment falls on all alike
        loops.append(calibration())
        for size, scheduler in schedulers.items():
            steps[size].append(step(scheduler))
        cold.append(admitting(idle))
        for name, (plain, budgets) in pairs.items():
            plain_ms = step(plain)
            ratios[name].append(step(budgets) / plain_ms)
    loop = median(loops)
    aims = {64: 0.15, 256: 0.5, 1_024: 2.0}
    figures = [Figure("calibration_ms", loops, unit="ms")]
    for size in sizes:
        figures.append(Figure(f"ms_{size}", steps[size], aims[size], "ms"))
        figures.append(Figure(f"loops_{size}", [ms / loop for ms in steps[size]], unit="x loop"))
    for name, ratio in ratios.items():
        figures.append(Figure(f"budgets_{name}", ratio, MOST, "x"))
    figures.append(Figure("cold_prompt_us", cold, 120.0, "us"))
    return finish("scheduler_step", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
