"""A healthy service in simulation, and how a run of it is recorded (World, recorded)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.budgets.mixes import CODE, CONV, MS, SECOND, Source
from headway.commands.replay.recording import Recording
from headway.core.batch import Batch
from headway.core.cost.features import Features
from headway.core.cost.step_cost import WHOLE, StepCost
from headway.core.lane import Budget, Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.order import Priority
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.costing.calibration import Calibration
from headway.costing.datasheet import analytical_calibration, read_accelerator, read_shape
from headway.costing.request_spec import RequestSpec
from headway.journal.record import Record
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals
from headway.sim.simulate import uncollected

MODEL, ACCELERATOR = "llama-3.1-8b", "h100-sxm"
SLOTS, CHUNK, CONTEXT = 64, 512, 32_768
EVERY, LONG = 60.0, 50.0  # seconds of the traces from window to window, and of a window
LOAD = 0.4  # times the traces' own rate
LANES = (
    Lane("chat", Budget(ttft=2 * SECOND, tpot=50 * MS), 0),
    Lane("code", Budget(ttft=2 * SECOND, tpot=50 * MS), 0),
)
Slowness = Callable[[int, int], int]  # a step's number and time: thousandths of its price


def as_priced(step: int, now: int) -> int:
    """A machine that is as its cost model says, give or take 3 % from step to step."""
    return WHOLE + (step * 7_919 % 61) - 30


@dataclass(frozen=True, slots=True)
class World:
    """All that a run is made from. A fault changes some of it."""

    requests: tuple[Request, ...]
    lanes: tuple[Lane, ...] = LANES
    policies: Policies = Policies(
        Continuous(SLOTS), Priority(), chunk=Fixed(CHUNK), step_tokens=SLOTS + CHUNK
    )
    num_blocks: int = 0  # 0: as many as the device has room for
    slowness: Slowness = field(default=as_priced)


def machine() -> Calibration:
    """The data sheet's cost model."""
    shape, sheet = read_shape(MODEL), read_accelerator(ACCELERATOR)
    return analytical_calibration(shape, sheet, MODEL, SLOTS, CONTEXT)


def window(number: int) -> Source:
    """The shipped traces' window of this number: 0 to 9."""
    return Source(None, number * EVERY, LONG)


def healthy(number: int, load: float = LOAD) -> World:
    """Recorded conversations and completions, at a load that the device bears."""
    source = window(number)
    specs = source.specs(CONV, "chat", CONTEXT) + source.specs(CODE, "code", CONTEXT)
    return World(requests_of(specs, load))


def requests_of(specs: Sequence[RequestSpec], load: float) -> tuple[Request, ...]:
    """With prompts that share nothing. load: times are divided by it."""
    timed = sorted([replace(each, at=int(each.at / load)) for each in specs], key=lambda s: s.at)
    return tuple(
        Request(f"{each.lane}-{n}", (n + 1,) * each.prompt, max(1, each.answer), each.at, each.lane)
        for n, each in enumerate(timed)
    )


class SlowedExecutor(PricedExecutor):
    """Steps that take their price times what the fault says."""

    def __init__(self, cost: StepCost, clock: VirtualClock, slowness: Slowness) -> None:
        super().__init__(cost, clock)
        self._slowness, self._step = slowness, 0

    def submit(self, batch: Batch) -> int:
        self._step = batch.step
        return super().submit(batch)

    def factor(self, features: Features) -> int:
        return self._slowness(self._step, self.clock.now())


def recorded(world: World, name: str) -> Recording:
    """Serve it in virtual time; the journal that it leaves."""
    priced = machine()
    settings = Settings(
        world.num_blocks or priced.num_blocks,
        priced.block_size,
        world.lanes,
        world.policies,
        priced.context,
        priced.cost,
    )
    records = list[Record]()
    scheduler, clock = Scheduler(settings), VirtualClock()
    executor = SlowedExecutor(priced.cost, clock, world.slowness)
    inbox = TraceInbox(arrivals(world.requests), clock)
    engine = VirtualEngine(scheduler, executor, inbox, clock, executor)
    engine.keep = records.append
    with uncollected():
        while not scheduler.finished:
            engine.step()
    return Recording(name, {}, settings, tuple(records), cut=False)
