"""How long does a device wait for the host, with one step in flight and with two?

A device that takes 8 ms a step, whatever is in it, serves 256 answers through the engine's own
loop. It is a clock and no thread: a step begins when the one before it has ended or, if that was
earlier, when it is submitted, and is collected 8 ms later. The device's idle time is the sum of the
gaps. Runs with two steps in flight and with one alternate, with first come and by budgets, in
windows of the same number of steps.

The aim is a share of at most 0.03 with two in flight (`idle_share`, first come).

    python -m benchmarks.device_idle            a minute and a half
    python -m benchmarks.device_idle --vllm     in vLLM's environment: its workers on this CPU

With --vllm the embedded model serves 48 answers, alternately with two steps in flight and with one,
and `vllm_two_over_one` is the ratio of their tokens per second. The aim is that nothing gets
slower: at least 0.97, because such ratios vary by that much.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace

from benchmarks.report import Figure, finish, parser
from benchmarks.scheduler_step import COST, LANES, answered
from headway.core.batch import Batch, Output
from headway.core.commands import Add, Close, Command
from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine, Executor
from headway.executor.traits import Traits
from headway.live.clock import WallClock
from headway.strategies.registry import by_budgets

STEP_NS, ROWS, PROMPT, BLOCK = 8_000_000, 256, 300, 16
WARM, STEPS, ROUNDS, SEED = 20, 200, 5, 0
MOST = 0.03
ANSWERS, LENGTH = 48, 120


class Device(Executor):
    """It computes nothing, and each step takes STEP_NS."""

    traits = Traits("a device of 8 ms a step", steps_in_flight=2)

    def __init__(self) -> None:
        self.free = 0  # when it has ended what was submitted
        self.idle = 0  # nanoseconds so far
        self.ends: dict[int, tuple[int, Output]] = {}

    def submit(self, batch: Batch) -> int:
        now = time.perf_counter_ns()
        self.idle += max(0, now - self.free) if self.free else 0
        self.free = max(now, self.free) + STEP_NS
        self.ends[batch.step] = self.free, answered(batch)
        return batch.step

    def collect(self, ticket: int) -> Output:
        end, output = self.ends.pop(ticket)
        while (left := end - time.perf_counter_ns()) > 0:
            time.sleep(left / 1e9)
        return output


class Inbox:
    """All requests at once, and nothing later."""

    def __init__(self, commands: list[Command]) -> None:
        self.commands = commands

    def poll(self) -> list[Command]:
        due, self.commands = self.commands, []
        return due

    def wait(self, until: int, least: int = 1) -> None:
        raise AssertionError("there is always a step to run")


def idle_share(policies: Policies, lanes: tuple[Lane, ...], depth: int) -> float:
    """The device's idle time over the time of STEPS steps in which ROWS answers decode."""
    adds: list[Command] = []
    for i in range(ROWS):
        prompt = tuple(range(i, i + PROMPT))
        adds.append(Add(Request(f"r{i}", prompt, 2_000, 0, lanes[i % len(lanes)].name)))
    settings = Settings(ROWS * 160, BLOCK, lanes, policies, cost=COST, depth=depth)
    scheduler, device = Scheduler(settings), Device()
    engine = Engine(scheduler, device, Inbox(adds), WallClock())
    while any(each.pending > 1 for each in scheduler.roster.by_id.values()) or not scheduler.steps:
        engine.step()
    _run(engine, WARM)
    idle, began = device.idle, time.perf_counter_ns()
    _run(engine, STEPS)
    return (device.idle - idle) / (time.perf_counter_ns() - began)


def _run(engine: Engine, steps: int) -> None:
    until = engine.scheduler.steps + steps
    while engine.scheduler.steps < until:
        engine.step()
    assert len(engine.scheduler.roster.running) == ROWS


def vllm_ratio(rounds: int) -> list[float]:
    """Tokens per second of vLLM's workers with two steps in flight, over those with one."""
    from headway.executor.load import load
    from headway.executor.loaded import settings_of
    from headway.executor.torch.memory.memory_plan import Limits
    from headway.models import EMBEDDED
    from headway.runs.shared_executor import SharedExecutor

    policies = Policies(Continuous(ANSWERS), chunk=Fixed(256), step_tokens=ANSWERS + 256)
    limits = Limits.of(policies, ANSWERS, 1_024, 32)
    loaded = load("vllm", EMBEDDED, limits, options={"enforce_eager": True})
    shared = SharedExecutor(loaded.executor)

    def rate(depth: int) -> float:
        adds: list[Command] = []
        for i in range(ANSWERS):
            adds.append(Add(Request(f"r{i}", tuple(range(i + 1, i + 65)), LENGTH, 0)))
        settings = replace(settings_of(loaded, (Lane(),), policies), depth=depth)
        shared.hand_over()
        engine = Engine(Scheduler(settings), shared, Inbox([*adds, Close()]), WallClock())
        began = time.perf_counter_ns()
        while not engine.scheduler.finished:
            engine.step()
        return ANSWERS * LENGTH / (time.perf_counter_ns() - began) * 1e9

    try:
        rate(1)
        ratios = list[float]()
        for turn in range(rounds):  # both go first equally often
            found = {depth: rate(depth) for depth in ((1, 2) if turn % 2 else (2, 1))}
            ratios.append(found[2] / found[1])
        return ratios
    finally:
        loaded.executor.close()


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--vllm", action="store_true", help="vLLM's workers instead")
    if options.parse_args().vllm:
        figures = [Figure("vllm_two_over_one", vllm_ratio(8), None, "x", least=0.97)]
        return finish("device_idle", __doc__ or "", SEED, figures)
    first_come = Policies(Continuous(ROWS), chunk=Fixed(256), step_tokens=ROWS + 256)
    cases: dict[str, Callable[[], float]] = {
        "idle_share": lambda: idle_share(first_come, (Lane(),), 2),
        "idle_share_of_one": lambda: idle_share(first_come, (Lane(),), 1),
        "idle_share_by_budgets": lambda: idle_share(by_budgets(ROWS), LANES, 2),
        "idle_share_of_one_by_budgets": lambda: idle_share(by_budgets(ROWS), LANES, 1),
    }
    shares = {name: list[float]() for name in cases}
    for _ in range(ROUNDS):  # in turn, so that a slow moment falls on all alike
        for name, case in cases.items():
            shares[name].append(case())
    figures = [
        Figure(name, seen, MOST if name == "idle_share" else None, "of the time")
        for name, seen in shares.items()
    ]
    return finish("device_idle", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
