"""One strategy, a few requests, virtual time: the real scheduler, and the rows it leaves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headway.core.batch import Batch, Output
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.costing.datasheet import model_work, read_accelerator, read_shape, roofline
from headway.engine import Engine, Executor
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals
from headway.sim.simulate import simulate

MODEL, ACCELERATOR = "llama-3.1-8b", "h100-sxm"
# As `headway calibrate MODEL --accelerator ACCELERATOR` works it out: nobody has measured it.
COST = roofline(model_work(read_shape(MODEL)), read_accelerator(ACCELERATOR))
STEPS = StepCost.of(1_000_000, per_token=0, per_pair=0)  # every step takes one millisecond
ROOM = 1 << 30  # tokens of a step that is never full
MS, SECOND = 1_000_000, 1_000_000_000


@dataclass(slots=True)
class Spy(Executor):
    """An executor that keeps the batches it passes on."""

    executor: Executor
    batches: list[Batch] = field(default_factory=list)

    def submit(self, batch: Batch) -> int:
        self.batches.append(batch)
        return self.executor.submit(batch)

    def collect(self, ticket: int) -> Output:
        return self.executor.collect(ticket)


@dataclass(frozen=True, slots=True)
class Served:
    """What a run has left. Times are nanoseconds."""

    requests: dict[str, RequestRow]
    steps: list[StepRow]
    batches: list[Batch]  # step by step, if they were asked for
    heard: dict[str, list[int]]  # by request: when its caller got each token

    @property
    def nanoseconds(self) -> int:
        return self.steps[-1].began + self.steps[-1].nanoseconds

    @property
    def busy(self) -> float:
        """Share of the time until the last step's end in which a step ran."""
        return sum(row.nanoseconds for row in self.steps) / self.nanoseconds

    @property
    def padding(self) -> int:
        return sum(row.padding_tokens for row in self.steps)

    @property
    def held(self) -> int:
        return sum(row.held_tokens for row in self.steps)

    @property
    def tokens(self) -> int:
        return sum(row.tokens for row in self.steps)

    def gaps(self, id: str, since: int = 0) -> list[int]:
        """Between the tokens of one answer, those that end after `since`."""
        times = self.heard[id]
        return [b - a for a, b in pairwise(times) if b > since]


def serve(
    requests: Sequence[Request],
    policies: Policies,
    lanes: Sequence[Lane] = (Lane(),),
    cost: StepCost = COST,
    blocks: int = 200_000,
    spied: bool = False,
) -> Served:
    """To the end, with the books checked. Blocks are of 16 tokens. Policies know the cost."""
    scheduler = Scheduler(Settings(blocks, lanes=tuple(lanes), policies=policies, cost=cost))
    clock = VirtualClock()
    executor = PricedExecutor(cost, clock)
    spy = Spy(executor)
    inbox = TraceInbox(arrivals(requests), clock)
    engine = Engine(scheduler, spy if spied else executor, inbox, clock)
    heard: dict[str, list[int]] = {request.id: [] for request in requests}
    while not scheduler.finished:
        for event in engine.step():
            heard[event.id] += [clock.now()] * len(event.tokens)
    scheduler.check()
    steps, rows = scheduler.ledger.take()
    return Served({row.id: row for row in rows}, steps, spy.batches, heard)


def counted(
    requests: Sequence[Request],
    policies: Policies,
    lanes: Sequence[Lane] = (Lane(),),
    cost: StepCost = COST,
    block_size: int = 16,
) -> Served:
    """As `serve`, but quicker: the times of single tokens are not kept."""
    blocks = 3_200_000 // block_size
    scheduler = Scheduler(Settings(blocks, block_size, tuple(lanes), policies, cost=cost))
    simulate(scheduler, arrivals(requests), cost)
    scheduler.check()
    steps, rows = scheduler.ledger.take()
    return Served({row.id: row for row in rows}, steps, [], {})


def ask(number: int, prompt: int, answer: int, at: int = 0, lane: str = "default") -> Request:
    """A request whose prompt begins like no other's, so that nothing is won from the cache."""
    return Request(f"{lane}-{number}", (number,) * prompt, answer, at, lane)


def quantile(values: Sequence[int], percent: int) -> int:
    """Nearest rank, where at least five values lie beyond it."""
    ordered = sorted(values)
    assert len(ordered) * (100 - percent) >= 500, "too few values for this percentile"
    return ordered[-(-len(ordered) * percent // 100) - 1]


def ttfts(served: Served, lane: str) -> list[int]:
    rows = [row for row in served.requests.values() if row.lane == lane]
    assert all(row.first_token != NEVER for row in rows)
    return [row.ttft for row in rows]
