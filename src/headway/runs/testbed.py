"""A testbed: an executor with a model or a cost model, a clock, and a text for prompts."""

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Protocol

from headway.core.batch import Batch, Output
from headway.core.cost.gathering import UNPADDED, Gathering
from headway.core.cost.step_cost import Rounding
from headway.core.scheduler import Scheduler
from headway.costing.calibration import Calibration
from headway.engine import Engine, Executor
from headway.errors import SettingError
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from headway.strategies.strategy import SLOTS

CONTEXT = 2048  # tokens a request may hold: room for the scaled traces' longest
BLOCK_SIZE = 16
TEXT_LENGTH = 1 << 19  # tokens of the text that simulated prompts are cut from
LINES_PER_PIECE = 25  # lines of the text that are encoded at once


class Clock(Protocol):
    """A clock that can be waited on."""

    def now(self) -> int: ...

    def advance_to(self, time: int, /) -> None:
        """Sleep until then, or set a virtual clock to it."""
        ...


class SharedExecutor:
    """One executor that several schedulers use, one after another.

    A scheduler tells the executor in its next batch which sequences have ended. After a run's last
    batch there is no next one, so the first batch of the next run says it.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._open: set[int] = set()
        self._left: tuple[int, ...] = ()

    def hand_over(self) -> None:
        """Expect the next batch from a new scheduler."""
        self._left, self._open = (*self._left, *sorted(self._open)), set()

    def submit(self, batch: Batch) -> int:
        self._open.difference_update(batch.ended)
        self._open.update(begun.sequence for begun in batch.begun)
        if self._left:
            batch, self._left = replace(batch, ended=self._left + batch.ended), ()
        return self.executor.submit(batch)

    def collect(self, ticket: int) -> Output:
        return self.executor.collect(ticket)


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
    fit: int = 0  # blocks that memory has room for; 0: num_blocks
    slots: int = SLOTS  # of the running batch, the same for every strategy
    threads: int = 1  # that the executor may use
    use_threads: Callable[[int], object] = lambda count: None
    rounding: Rounding = Rounding()  # how the executor rounds a step's tokens up
    gathering: Gathering = UNPADDED  # how the executor reads keys
    engine: Callable[[Scheduler, Executor, TraceInbox, Clock], Engine] = Engine
    simulated: str = ""  # by which cost model, in words; empty: it is a real machine


def simulated_testbed(calibration: Calibration, seed: int) -> Testbed:
    """A testbed in virtual time: steps take as long as the cost model says, and compute nothing.

    It has the slots of the cost file where that comes from a data sheet, and else those of a live
    comparison. seed: of the steps' residuals. Prompts are cut from ascending numbers, so that
    prompts that begin at different places share no block.
    """
    clock = VirtualClock()
    priced = PricedExecutor(calibration.cost, clock, seed=seed)
    kind = "data sheets" if calibration.analytical else "measured steps"
    return Testbed(
        model=calibration.model,
        dtype=calibration.dtype,
        device=calibration.device,
        num_blocks=calibration.num_blocks,
        block_size=calibration.block_size,
        context=calibration.context,
        text=tuple(range(TEXT_LENGTH)),
        executor=SharedExecutor(priced),
        clock=clock,
        fit=calibration.fit,
        slots=calibration.slots if calibration.analytical else SLOTS,
        threads=calibration.threads,
        engine=lambda scheduler, executor, inbox, _: VirtualEngine(
            scheduler, executor, inbox, clock, priced, coasting=True
        ),
        simulated=f"a cost model of {kind}",
    )


def read_corpus() -> str:
    """The shipped text for prompts: documentation that the embedded model was not trained on."""
    path = files("headway") / "data" / "corpus.txt.gz"
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except OSError as error:
        raise SettingError(f"the text for the prompts cannot be read: {error}") from error


def split_text(text: str) -> list[str]:
    """Half a page each, because tokenizing takes more than linear time."""
    lines = text.splitlines(keepends=True)
    return [
        "".join(lines[at : at + LINES_PER_PIECE]) for at in range(0, len(lines), LINES_PER_PIECE)
    ]
