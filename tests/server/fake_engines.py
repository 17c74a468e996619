"""Engine processes with the fake executor: they start without torch, in a fifth of the time.

    python -m tests.server.fake_engines serve ...

is `headway serve` with such engines. All the rest is real: the processes, their pipes, the plan of
their memory, their journals. An encoder is loaded as ever.
"""

import time
from contextlib import nullcontext
from dataclasses import fields
from types import SimpleNamespace

from headway.core.cost.gathering import Gathering
from headway.core.cost.step_cost import Rounding
from headway.executor.encoder.families import is_encoder
from headway.executor.fake import VOCABULARY, FakeExecutor
from headway.executor.load import load
from headway.executor.torch.config.model_config import read_config
from headway.executor.torch.loading.checkpoint import locate
from headway.executor.torch.loading.weight_bytes import weight_bytes
from headway.executor.torch.memory.free_memory import free_on_host
from headway.executor.torch.memory.memory_plan import gather_budget, plan_memory
from headway.server.engine import engine_process
from headway.server.engine.messages import EngineOptions

STEP = 0.002  # seconds: about the embedded model's


class FakeEngine(EngineOptions):
    """EngineOptions: where they are unpickled, the engine loads the fake executor."""

    def __reduce__(self):
        return _planted, ({each.name: getattr(self, each.name) for each in fields(self)},)


def _planted(options):
    engine_process.load = loaded
    engine_process.tokenizer_beside = lambda *given: nullcontext()  # it would import torch
    return EngineOptions(**options)


class Timed(FakeExecutor):
    """Its steps take as long as a device's, and no processor time."""

    def submit(self, batch):
        time.sleep(STEP)
        return super().submit(batch)


def loaded(executor, source, limits, dtype="", *rest):
    """As headway.executor.load.load, with the fake executor in place of a decoder's weights."""
    folder = locate(source)
    if is_encoder(folder):
        return load(executor, folder, limits, dtype, *rest)
    config = read_config(folder)
    precision = config.precision(dtype, "cpu")
    weights = weight_bytes(config, precision)
    free = free_on_host() - weights
    plan = plan_memory(config, limits, precision.itemsize, weights, free, gather_budget("cpu"))
    return SimpleNamespace(
        executor=Timed(plan.num_blocks, plan.block_size),
        plan=plan,
        folder=folder,
        dtype=str(precision),
        device="cpu",
        vocab=config.vocab,
        eos=frozenset({VOCABULARY}),  # a token that the fake never says
        threads=1,
        rounding=Rounding(),
        gathering=Gathering(),
    )


if __name__ == "__main__":
    from headway.cli import main
    from headway.server import backends

    backends.EngineOptions = FakeEngine
    main()
