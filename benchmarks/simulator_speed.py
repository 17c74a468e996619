"""How long does simulating half an hour of real traffic take, with the whole ledger kept?

The half hour of azure2023-conv (9,732 requests, 2.15 million answered tokens, about 156,000 steps)
on one accelerator with an 8B-class model is simulated on one core; then ten such half hours in a
row. Each step's residual is drawn. The baseline is the same simulation in the same run, but with
every step taken by itself; its rows must be the same. Vidur's linear predictor took 10.8 s on this
trace on a machine like the one that the aim was set on (another accelerator: not the same steps).

And by budgets: the processor time of simulating six windows of the bursty mix of benchmarks.budgets
at three times its load, over that of first come, in turn. The aim is 1.5. The windows are those of
../shared/traces, or of the shorter traces that come with the package.

    python -m benchmarks.simulator_speed [--check]
"""

import gc
import signal
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from types import FrameType

from rich.console import Console
from rich.table import Table

from benchmarks.budgets.mixes import MIXES, SHARED
from benchmarks.budgets.trial import simulated as served
from benchmarks.budgets.variants import Variant, first_come
from benchmarks.report import Figure, finish
from headway.core.commands import Add, Command
from headway.core.cost.step_cost import Echo, Rates, Residuals, StepCost
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from headway.sim.simulate import simulate, uncollected
from headway.strategies.registry import by_budgets
from headway.traffic.trace import Arrival, read_trace

TRACE = Path(__file__).parent / "traces" / "azure2023-conv.csv.gz"
TIMES, REPEATS = 10, 3
WINDOWS, LOAD, MOST = 6, 3.0, 1.5  # of the bursty mix
BLOCKS, SLOTS, CHUNK = 16_000, 256, 2_048  # 256,000 tokens of KV, as 33 GB hold of an 8B model
# About an 8B model on one H100: 7 ms a step, 35 us a token, 47 ns a key that is read, and little a
# (query, key) pair; with residuals of a steady machine.
NOISE = Residuals(tuple(range(900, 1_120, 10)))
COST = StepCost(
    Rates(step=7_000_000_000, read=47_000, pair=1_200),
    ((0, 35_000_000),),
    knee=295,
    residuals=(NOISE, NOISE),
    echoes=(Echo(1_000, 17_000_000),),  # half of it a step later
)
WORDS = tuple(range(100, 9_000))
SAMPLE = 0.001  # seconds of processor time between two looks of the profile


def timed(trace: list[Arrival], times: int) -> Iterator[tuple[int, Command]]:
    """No two prompts begin alike. Made as they come: never all in memory."""
    end, number = trace[-1].at, 0
    for turn in range(times):
        for each in trace:
            prompt = (len(WORDS) + number, *WORDS[: each.prompt - 1])
            at, number = each.at + turn * end, number + 1
            yield at, Add(Request(f"r{number}", prompt, each.answer, at))


def scheduler() -> Scheduler:
    policies = Policies(Continuous(SLOTS), chunk=Fixed(CHUNK), step_tokens=CHUNK)
    return Scheduler(Settings(BLOCKS, policies=policies))


def simulated(trace: list[Arrival], times: int) -> tuple[float, Scheduler]:
    """Seconds of one simulation, and what it left."""
    made = scheduler()
    gc.collect()
    began = perf_counter()
    simulate(made, timed(trace, times), COST, seed=0)
    return perf_counter() - began, made


def by_step(trace: list[Arrival]) -> tuple[float, Scheduler]:
    """The same simulation, with no step skipped."""
    made, clock = scheduler(), VirtualClock()
    inbox, priced = TraceInbox(timed(trace, 1), clock), PricedExecutor(COST, clock, seed=0)
    engine = VirtualEngine(made, priced, inbox, clock, priced, coasting=False)
    gc.collect()
    began = perf_counter()
    with uncollected():
        while not made.finished:
            engine.step()
    return perf_counter() - began, made


def by_budgets_over_first_come() -> Iterator[float]:
    """Window by window: the ratio of processor time, which other processes lengthen least."""
    mix, folder = MIXES["bursty"], SHARED if SHARED.is_dir() else None
    variants = first_come(mix.slots, 1_024), Variant("budgets", by_budgets(mix.slots))
    for window in mix.windows(folder, WINDOWS):
        offered, spent = mix.requests(window, LOAD), list[float]()
        for variant in variants:
            gc.collect()
            began = process_time()
            served(mix, offered, variant)
            spent.append(process_time() - began)
        yield spent[1] / spent[0]


def profile(trace: list[Arrival]) -> Counter[str]:
    """Where the processor was, by function, sampled now and then, which costs nothing."""
    seen = Counter[str]()

    def look(number: int, frame: FrameType | None) -> None:
        if frame is not None:
            code = frame.f_code
            seen[f"{Path(code.co_filename).stem}: {code.co_name}"] += 1

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, SAMPLE, SAMPLE)
    try:
        simulated(trace, 1)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return seen


def show(seen: Counter[str]) -> None:
    table = Table(title="Where the time goes (share of the looks)", title_justify="left")
    table.add_column("file: function")
    table.add_column("share", justify="right")
    for name, count in seen.most_common(14):
        table.add_row(name, f"{count / seen.total():.1%}")
    Console(width=100).print(table)


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    budgets = list(by_budgets_over_first_come())
    trace = read_trace(asked.trace)
    ones, steps, tens = list[float](), list[float](), list[float]()
    for _ in repeat(None, REPEATS):
        seconds, at_once = simulated(trace, 1)
        slowly, one_by_one = by_step(trace)
        assert at_once.ledger.steps == one_by_one.ledger.steps, "skipping has changed a row"
        assert at_once.ledger.requests == one_by_one.ledger.requests
        ones.append(seconds)
        steps.append(slowly)
    rows = f"{len(at_once.ledger.requests):,} requests, {len(at_once.ledger.steps):,} steps"
    print(f"{rows} of {sum(s.rows for s in at_once.ledger.steps) / len(at_once.ledger.steps):.1f}")
    del at_once, one_by_one
    seconds, many = simulated(trace, TIMES)
    assert len(many.ledger.requests) == TIMES * len(trace)
    tens.append(seconds)
    del many
    show(profile(trace))
    figures = [
        Figure("seconds", ones, most=5.0, unit="s"),
        Figure("seconds_by_step", steps, unit="s"),
        Figure("seconds_10x", tens, most=11 * median(ones), unit="s"),
        Figure("budgets_over_first_come", budgets, most=MOST, unit="x"),
    ]
    return finish("simulator_speed", __doc__ or "", 0, figures)


if __name__ == "__main__":
    sys.exit(main())
