"""LoRA adapters in vLLM's workers answer as the model with the adapter's weights merged into it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from headway.core.commands import Add
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import HeadwayError
from headway.executor.load import load
from headway.executor.torch.memory.memory_plan import Limits
from headway.runs.shared_executor import SharedExecutor
from headway.sim.simulate import simulate
from tests.executor.torch.tiny_checkpoints import VOCAB, Golden, make
from tests.vllm.conftest import CONTEXT, EAGER, SHAPES, SIZES

MS = 1_000_000
RANKS, ALPHA, TOKENS = {"one": 4, "two": 12}, 8, 30
TARGETS = ("q_proj", "v_proj", "o_proj", "down_proj")
LIMITS = Limits(6, 0, CONTEXT, 32)


def write_adapter(model, folder: Path, rank: int) -> dict[str, torch.Tensor]:
    """A random adapter as peft writes it. Returns what it adds to the weights, by their names."""
    stream, tensors, added = torch.Generator().manual_seed(rank), {}, {}
    for name, weight in model.state_dict().items():
        if name.removesuffix(".weight").rpartition(".")[2] not in TARGETS:
            continue
        out, into = weight.shape
        a = 0.3 * torch.randn(rank, into, generator=stream)
        b = 0.3 * torch.randn(out, rank, generator=stream)
        path = f"base_model.model.{name.removesuffix('.weight')}"
        tensors |= {f"{path}.lora_A.weight": a, f"{path}.lora_B.weight": b}
        added[name] = ALPHA / rank * b @ a
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    plain = {"peft_type": "LORA", "r": rank, "lora_alpha": ALPHA, "target_modules": [*TARGETS]}
    (folder / "adapter_config.json").write_text(json.dumps(plain))
    return added


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """vLLM's executor with two adapters; by name, the model that each should equal."""
    root = tmp_path_factory.mktemp("adapted")
    shape, more = SHAPES["llama"]
    goldens = {"": make(root / "model", shape, **(SIZES | more))}
    for name, rank in RANKS.items():
        model = AutoModelForCausalLM.from_pretrained(goldens[""].folder, dtype=torch.float32)
        added = write_adapter(model, root / name, rank)
        with torch.no_grad():
            for each, weight in model.state_dict().items():
                weight += added.get(each, 0)
        model.save_pretrained(root / f"merged-{name}")
        goldens[name] = Golden(root / f"merged-{name}", model)
    loaded = load(
        "vllm",
        goldens[""].folder,
        Limits(6, 512, CONTEXT, 32),
        "float32",
        options=EAGER,
        adapters={name: str(root / name) for name in RANKS},
    )
    yield SharedExecutor(loaded.executor), goldens
    loaded.executor.close()


def serve(executor, requests, blocks=40):
    """Each request's tokens, and the scheduler."""
    executor.hand_over()
    policies = Policies(Continuous(6), chunk=Fixed(16), step_tokens=40)
    scheduler = Scheduler(Settings(blocks, 32, (Lane(),), policies, CONTEXT))
    cost = StepCost.of(10 * MS, per_token=MS, per_pair=0)
    said = {each.id: [] for each in requests}
    commands = [(each.arrived, Add(each)) for each in requests]
    for event in simulate(scheduler, commands, cost, executor):
        assert not event.error, event.error
        said[event.id] += event.tokens
    scheduler.check()
    return said, scheduler


def prompts() -> list[tuple[int, ...]]:
    stream = torch.Generator().manual_seed(0)
    return [tuple(torch.randint(VOCAB, (n,), generator=stream).tolist()) for n in (70, 33, 5)]


def mixed() -> list[Request]:
    """Every prompt with every adapter and with none, all at once."""
    pairs = [(prompt, name) for prompt in prompts() for name in ("", *RANKS)]
    return [
        Request(f"{i}", prompt, TOKENS, i, adapter=name) for i, (prompt, name) in enumerate(pairs)
    ]


def test_adapters_mixed_in_a_batch_answer_as_the_merged_models(adapted):
    executor, goldens = adapted
    asked = mixed()
    wanted = {each.id: goldens[each.adapter].generate(each.prompt, TOKENS) for each in asked}
    for name, golden in goldens.items():
        ours = SharedExecutor(load("torch", golden.folder, LIMITS, "float32").executor)
        mine = [Request(each.id, each.prompt, TOKENS, 0) for each in asked if each.adapter == name]
        assert serve(ours, mine)[0] == {each.id: wanted[each.id] for each in mine}
    said, scheduler = serve(executor, asked)
    assert said == wanted
    assert len({tuple(tokens) for tokens in said.values()}) == len(asked), "each says another thing"
    assert all(row.cached == 0 for row in scheduler.ledger.requests), "no two share a prefix"
    tight, crowded = serve(executor, asked, blocks=6)
    assert tight == wanted
    assert sum(row.preemptions for row in crowded.ledger.requests) > 0


def test_the_prefix_cache_is_shared_only_by_requests_of_one_adapter(adapted):
    executor, goldens = adapted
    long, later = prompts()[0], 10**12
    names = ["one", "one", "two", ""]
    asked = [Request(f"{i}", long, TOKENS, i * later, adapter=n) for i, n in enumerate(names)]
    said, scheduler = serve(executor, asked)
    cached = {row.id: row.cached for row in scheduler.ledger.requests}
    assert cached == {"0": 0, "1": 64, "2": 0, "3": 0}
    for each in asked:
        assert said[each.id] == goldens[each.adapter].generate(long, TOKENS)


def test_an_unknown_adapter_is_an_error_of_its_request_alone(adapted):
    executor, _ = adapted
    executor.hand_over()
    scheduler = Scheduler(Settings(40, 32, (Lane(),), Policies(Continuous(2)), CONTEXT))
    asked = [Request("0", (1, 2), 3, 0, adapter="three"), Request("1", (1, 2), 3, 0)]
    cost = StepCost.of(10 * MS)
    events = simulate(scheduler, [(0, Add(each)) for each in asked], cost, executor)
    errors = {event.id: event.error for event in events if event.error}
    assert errors == {"0": "there is no adapter 'three'"}


def test_an_adapter_that_vllm_cannot_read_is_refused_by_name(adapted, tmp_path):
    _, goldens = adapted
    (tmp_path / "adapter_config.json").write_text('{"r": 4, "lora_alpha": 8}')
    with pytest.raises(HeadwayError, match="vLLM refuses the adapter broken: "):
        load(
            "vllm",
            goldens[""].folder,
            Limits(2, 64, CONTEXT, 32),
            "float32",
            options=EAGER,
            adapters={"broken": str(tmp_path)},
        )
