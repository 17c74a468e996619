"""The engine process with the fake executor in place of torch: ready at once.

All else is the server's own: scheduler, accounts, pipe. The executor keeps a paged memory, and
answers with tokens of no meaning. The tokenizer is read once, by the benchmark, because reading it
imports torch: `keep_tokenizer` writes it to a file, and $BENCH_TOKENIZER names that.
"""

import json
import os
import pickle
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import sleep
from typing import Any
from unittest.mock import patch

from headway.core.batch import Output
from headway.core.cost.gathering import Gathering
from headway.core.cost.step_cost import Rounding
from headway.executor.fake import FakeExecutor
from headway.models import EMBEDDED
from headway.server.engine import engine_process
from headway.server.engine.device_work import DeviceWork
from headway.server.engine.messages import EngineOptions
from headway.text.tokenizer import Tokenizer

STEP = 0.004  # seconds that a step takes at least: about as long as with the embedded model
WEIGHTS = 1 << 20  # bytes
VOCABULARY = int(json.loads((EMBEDDED / "config.json").read_text())["vocab_size"])
KEPT = "BENCH_TOKENIZER"


def keep_tokenizer(file: Path) -> None:
    """Write it there, for processes that are started from now on."""
    file.write_bytes(pickle.dumps(Tokenizer(EMBEDDED, VOCABULARY)))
    os.environ[KEPT] = str(file)


class SlowFake(FakeExecutor):
    """As quick as a device."""

    def collect(self, ticket: int) -> Output:
        sleep(STEP)
        return super().collect(ticket)


@dataclass(frozen=True, slots=True)
class FakePlan:
    """executor.loaded.Plan."""

    weights: int = WEIGHTS
    per_block: int = 1_024
    block_size: int = 16
    num_blocks: int = 2_048
    fit: int = 2_048
    context: int = 1_024
    summary: str = "memory: a fake executor's"


@dataclass(frozen=True, slots=True)
class FakeLoaded:
    """executor.loaded.Loaded."""

    executor: FakeExecutor
    plan: FakePlan = FakePlan()
    folder: Path = EMBEDDED
    dtype: str = "float32"
    device: str = "cpu"
    vocab: int = VOCABULARY
    eos: frozenset[int] = frozenset()
    threads: int = 1
    rounding: Rounding = Rounding()
    gathering: Gathering = Gathering()


def no_work(*asked: Any) -> DeviceWork:
    """What a step asks of the device: to read the model's shape imports torch."""
    return DeviceWork()


def run(options: EngineOptions, channel: Connection, words: Connection | None = None) -> None:
    """The process's main function."""
    plan = FakePlan()

    def load(*asked: Any) -> FakeLoaded:
        return FakeLoaded(SlowFake(plan.num_blocks, plan.block_size))

    def tokenizer(*asked: Any) -> Any:
        return pickle.loads(Path(os.environ[KEPT]).read_bytes())

    with ExitStack() as stack:
        for name, instead in (("load", load), ("Tokenizer", tokenizer), ("device_work", no_work)):
            stack.enter_context(patch.object(engine_process, name, instead))
        engine_process.run(options, channel, words)
