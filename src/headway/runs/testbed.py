"""A testbed (Testbed): an executor, its clock and limits, and a text for prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.cost.gathering import UNPADDED, Gathering
from headway.core.cost.step_cost import Rounding, StepCost
from headway.core.lane import Lane
from headway.core.policies.policies import Policies
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine, Executor
from headway.runs.shared_executor import SharedExecutor
from headway.sim.inbox import TraceInbox
from headway.strategies.strategy import SLOTS

CONTEXT = 2048  # tokens a request may hold: room for the scaled traces' longest
BLOCK_SIZE = 16


class Clock(Protocol):
    """A clock that can be waited on."""

    def now(self) -> int: ...

    def advance_to(self, time: int, /) -> None:
        """Sleep until `time`, or set a virtual clock to it."""
        ...


@dataclass(frozen=True, slots=True)
class Testbed:
    """The model, executor, clock and limits that all strategies of a comparison run on."""

    model: str
    dtype: str
    device: str
    num_blocks: int
    block_size: int
    context: int  # tokens that a request may hold
    text: Sequence[int]  # token ids that prompts are cut from
    executor: SharedExecutor
    clock: Clock
    memory: str = ""  # how the memory was planned, in words
    fit: int = 0  # blocks that the memory has room for; 0: num_blocks
    slots: int = SLOTS  # of the running batch, the same for every strategy
    threads: int = 1  # threads that the executor may use
    use_threads: Callable[[int], object] = lambda count: None
    fixed_threads: bool = False  # the number of threads is fixed: use_threads does nothing
    rounding: Rounding = Rounding()  # how the executor rounds a step's tokens up
    gathering: Gathering = UNPADDED  # how the executor reads keys
    depth: int = 1  # steps in flight
    engine: Callable[[Scheduler, Executor, TraceInbox, Clock], Engine] = Engine
    simulated: str = ""  # the cost model that it simulates, in words; empty: a real machine
    cost: StepCost = StepCost()  # the cost model that policies predict with; by default unknown
    cost_source: str = ""  # where `cost` comes from, in words; empty: none, or simulated

    @property
    def kind(self) -> str:
        """The executor's kind, as --executor and cost files name it."""
        return self.executor.traits.kind

    @property
    def thread_choices(self) -> list[int]:
        """The numbers of threads to try: one and all, or only the fixed number."""
        return [self.threads] if self.fixed_threads else sorted({1, self.threads})

    def settings(self, policies: Policies, lanes: Sequence[Lane]) -> Settings:
        """The settings of a scheduler on this testbed. Raises SettingError if the policies or lanes
        do not suit it."""
        settings = Settings(
            self.num_blocks,
            self.block_size,
            tuple(lanes),
            policies,
            self.context,
            self.cost,
            self.depth,
        )
        self.executor.traits.check(settings)
        return settings
