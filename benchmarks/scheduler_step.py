"""What does the scheduler cost per step, in pure Python?

Steady decoding at 64, 256 and 1,024 running sequences with the prefix cache on: schedule() plus
commit(), without an executor. Beside it, in the same run, a calibration loop (a million additions),
because absolute times depend on the machine. Also timed: admitting a cold prompt of 1,000 tokens:
apply(), the schedule() that joins it, and the commit() that publishes its blocks.

The aims are 0.15, 0.5 and 2 ms a step, and 120 microseconds for the prompt. vLLM
0.32's scheduler took 0.80, 3.1 and 15.9 ms and 286 microseconds on a similar machine.
"""

import random
import sys
import time
from statistics import median

from benchmarks.report import Figure, finish
from headway.core.batch import Batch, Output, Want
from headway.core.commands import Add
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings

CONTEXT, PROMPT, BLOCK, STEPS, REPEATS = 300, 1_000, 16, 60, 7
SEED = 0


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
    """So many sequences, their prompts computed. slots: for them, and for others; 0: for them."""
    draw = random.Random(SEED)
    policies = Policies(join=Continuous(slots or running), step_tokens=8_192)
    scheduler = Scheduler(Settings(running * 64, BLOCK, policies=policies))
    prompts = [tuple(draw.randrange(50_000) for _ in range(CONTEXT)) for _ in range(running)]
    scheduler.apply([Add(Request(f"r{i}", p, 700, 0)) for i, p in enumerate(prompts)], 0)
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
    sizes = (64, 256, 1_024)
    schedulers = {size: decoding(size) for size in sizes}
    idle = Scheduler(Settings(20_000, BLOCK, policies=Policies(step_tokens=8_192)))
    loops, steps, cold = list[float](), {size: list[float]() for size in sizes}, list[float]()
    for _ in range(REPEATS):  # interleaved, so that a slow moment falls on all alike
        loops.append(calibration())
        for size, scheduler in schedulers.items():
            steps[size].append(step(scheduler))
        cold.append(admitting(idle))
    loop = median(loops)
    aims = {64: 0.15, 256: 0.5, 1_024: 2.0}
    figures = [Figure("calibration_ms", loops, unit="ms")]
    for size in sizes:
        figures.append(Figure(f"ms_{size}", steps[size], aims[size], "ms"))
        figures.append(Figure(f"loops_{size}", [ms / loop for ms in steps[size]], unit="x loop"))
    figures.append(Figure("cold_prompt_us", cold, 120.0, "us"))
    return finish("scheduler_step", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
