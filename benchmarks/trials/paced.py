"""An engine process whose device is a clock: each step takes its price (run_paced).

Nothing is computed, so several servers fit on one machine. All else of the process is the server's
own: its loop, its scheduler, the pipe to the front.
"""

import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.trials.late import LateChannel, Planted
from benchmarks.trials.traffic import device
from headway.core.batch import Batch, Output
from headway.core.cost.features import batch_features
from headway.core.cost.gathering import UNPADDED, Gathering
from headway.core.cost.step_cost import Rounding
from headway.engine import Executor
from headway.executor.traits import Traits
from headway.models import EMBEDDED
from headway.server.engine import engine_process
from headway.server.engine.messages import EngineOptions
from headway.sim.executor import SAYS
from headway.text.tokenizer import Tokenizer

WORD = " the"  # what it always says


@dataclass(frozen=True, slots=True)
class Machine:
    """The data sheet's device, made coarser, slower, and quicker than time."""

    coarse: int  # recorded tokens that one token stands for: a step is as long as so many
    slow: float  # times the device's price
    pace: float  # seconds of the trace that pass in one of ours
    told: str  # file that takes a Tally at the end
    planted: Planted | None = None

    @property
    def num_blocks(self) -> int:
        return device().num_blocks // self.coarse


@dataclass(slots=True)
class Tally:
    """How well it kept the time, in seconds."""

    steps: int = 0
    priced: float = 0.0
    lost: float = 0.0  # in all, because it woke so late that the next step began late


class Paced(Executor):
    """A step begins where the last one ended or, if that was long ago, when it is submitted: the
    host's time is in the price. It ends when its price is over."""

    traits = Traits("a clock", logprobs=False, prompt_logprobs=False, grammars=False)

    def __init__(self, machine: Machine, word: int) -> None:
        self.machine, self.word, self.cost = machine, word, device().cost
        self.scale = machine.coarse * machine.slow / machine.pace
        self.host = int(self.cost.host.step / 1_000 * self.scale)  # nanoseconds
        self.free, self.tally = 0, Tally()
        self._steps: dict[int, tuple[int, Output]] = {}

    def submit(self, batch: Batch) -> int:
        features = batch_features(batch, self.cost.gathering)
        features = features._replace(reads=features.reads * self.machine.coarse)
        price = int(self.cost.predict(features) * self.scale)
        self.free = max(self.free, time.monotonic_ns() - self.host) + price
        said = [(self.word,) if row.want in SAYS else () for row in batch.rows]
        self._steps[batch.step] = self.free, Output(tuple(said))
        self.tally.steps += 1
        self.tally.priced += price / 1e9
        return batch.step

    def collect(self, ticket: int) -> Output:
        end, output = self._steps.pop(ticket)
        while (left := end - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)
        self.tally.lost += max(0, -left - self.host) / 1e9
        return output

    def close(self) -> None:
        Path(self.machine.told).write_text(json.dumps(asdict(self.tally)))


@dataclass(frozen=True, slots=True)
class Memory:
    """headway.executor.loaded.Plan."""

    num_blocks: int
    block_size: int
    context: int
    weights: int = 0
    per_block: int = 0
    summary: str = "memory: none, the device is a clock"

    @property
    def fit(self) -> int:
        return self.num_blocks


@dataclass(frozen=True, slots=True)
class Pretended:
    """headway.executor.loaded.Loaded: the embedded model's words, and no model."""

    executor: Executor
    plan: Memory
    vocab: int
    folder: Path = EMBEDDED
    dtype: str = "none"
    device: str = "a clock"
    eos: frozenset[int] = frozenset()
    threads: int = 1
    rounding: Rounding = Rounding()
    gathering: Gathering = UNPADDED


def pretended(machine: Machine, *given: Any) -> Pretended:
    """Instead of headway.executor.load.load."""
    limits, vocab = given[2], json.loads((EMBEDDED / "config.json").read_text())["vocab_size"]
    word = Tokenizer(EMBEDDED, vocab).encode(WORD)[-1]
    plan = Memory(machine.num_blocks, limits.block_size, limits.context)
    return Pretended(Paced(machine, word), plan, vocab)


def run_paced(
    machine: Machine, options: EngineOptions, channel: Connection, words: Connection | None = None
) -> None:
    """Instead of headway.server.engine.engine_process.run."""
    vars(engine_process)["load"] = partial(pretended, machine)
    ours: Any = LateChannel(channel, machine.planted) if machine.planted else channel
    engine_process.run(options, ours, words)
