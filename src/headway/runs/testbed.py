"""What a run needs of its surroundings: a model on an executor, a clock, a text for prompts."""

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
TEXT_LENGTH = 1 << 19  # places at which a simulated prompt may begin
LINES_PER_PIECE = 25  # lines of the text that are encoded at once


class Clock(Protocol):
    """A clock that can be waited on."""

    def now(self) -> int: ...

    def advance_to(self, time: int, /) -> None:
        """Sleep until then, or make it so."""
        ...


class SharedExecutor:
    """One executor for several schedulers, one after the other.

    A run that has ended leaves sequences of which the executor was never told: the scheduler
    says it with its next batch, and there was none. The next run's first batch says it.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._open: set[int] = set()
        self._left: tuple[int, ...] = ()

    def hand_over(self) -> None:
        """The next batch comes from a new scheduler."""
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
    model: str
    dtype: str
    device: str
    num_blocks: int
    block_size: int
    context: int  # tokens that a request may hold
    text: Sequence[int]  # token ids that prompts are cut from
    executor: SharedExecutor
    clock: Clock
    memory: str = ""  # how it was planned, in words
    fit: int = 0  # blocks that there is room for; 0: no more than there are
    slots: int = SLOTS  # of the running batch, for every strategy alike
    threads: int = 1  # that the executor has at most
    use_threads: Callable[[int], object] = lambda count: None
    rounding: Rounding = Rounding()  # of a step's tokens, by the executor
    gathering: Gathering = UNPADDED  # of keys, by it too
    engine: Callable[[Scheduler, Executor, TraceInbox, Clock], Engine] = Engine
    simulated: str = ""  # on whose prices, in words; empty: it is real


def simulated_testbed(calibration: Calibration, seed: int) -> Testbed:
    """Nothing is computed: steps take the time that the cost model says, in no time.

    Of a data sheet's machine it has the slots of the cost file, of a measured one those of a
    comparison there. seed: of the steps' residuals. Prompts are cut from numbers in order, so that
    no two that begin at different places share a block.
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
    """Documentation that the embedded model has not seen in training; it ships with the package."""
    path = files("headway") / "data" / "corpus.txt.gz"
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except OSError as error:
        raise SettingError(f"the text for the prompts cannot be read: {error}") from error


def split_text(text: str) -> list[str]:
    """Of half a page each: a tokenizer takes more than linear time over a whole book."""
    lines = text.splitlines(keepends=True)
    return [
        "".join(lines[at : at + LINES_PER_PIECE]) for at in range(0, len(lines), LINES_PER_PIECE)
    ]
