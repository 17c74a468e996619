"""Vectors of prompts are transformers' hidden states, pooled, whatever the batching."""

import numpy as np
import pytest
import torch
from transformers import AutoModel

from headway.core.commands import Add
from headway.core.cost.step_cost import StepCost
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Static
from headway.core.policies.policies import Policies
from headway.core.request import Finish, Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from headway.sim.simulate import simulate
from tests.executor.torch.test_golden import prompts
from tests.executor.torch.tiny_checkpoints import CONTEXT, MORE, SHAPES

MS = 1_000_000
COST = StepCost.of(10 * MS, per_token=MS, per_pair=0)
JOINS = {
    "alone": Policies(Continuous(1), chunk=Whole()),
    "together": Policies(Continuous(8), chunk=Whole()),
    "in chunks": Policies(Continuous(5), chunk=Fixed(7), step_tokens=24),
    "in groups": Policies(Static(3)),
}
ASKED = [(prompt, pooling) for prompt in prompts() for pooling in ("last", "mean")]


def expected(folder):
    """[ASKED, hidden] by transformers, one prompt at a time."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    found = []
    for prompt, pooling in ASKED:
        with torch.inference_mode():
            hidden = model(torch.tensor([prompt])).last_hidden_state[0]
        found.append((hidden[-1] if pooling == "last" else hidden.mean(dim=0)).numpy())
    return np.stack(found)


def pooled(folder, policies, asked=ASKED, generated=0):
    """[asked, hidden] by ours, beside so many requests that generate."""
    loaded = load(folder, Limits(sequences=8, block_size=4, num_blocks=30))
    settings = Settings(30, 4, policies=policies, context=CONTEXT)
    others = [Request(f"g{i}", (5, 6, 7), 12, i * 7 * MS) for i in range(generated)]
    requests = [
        Request(f"{i}", prompt, 0, i * MS, pooling=pooling)
        for i, (prompt, pooling) in enumerate(asked)
    ]
    timed = sorted([(each.arrived, Add(each)) for each in others + requests], key=lambda t: t[0])
    events = simulate(Scheduler(settings), timed, COST, loaded.executor)
    ended = {event.id: event for event in events if event.finish}
    assert {ended[each.id].finish for each in requests} == {Finish.COMPUTED}
    return np.stack([np.frombuffer(ended[each.id].vector, np.float32) for each in requests])


@pytest.mark.parametrize("shape", [*SHAPES, *MORE])
def test_vectors_equal_transformers(goldens, shape):
    folder = goldens[shape].folder
    want = expected(folder)
    for policies in JOINS.values():
        found = pooled(folder, policies, generated=3)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
