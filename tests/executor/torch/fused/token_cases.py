"""Fused kernels equal torch's operators in every family. Run by test_interpreted.py."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from headway.executor.torch.attention.kernels import attend, merge
from headway.executor.torch.attention.paged import PagedAttention
from headway.executor.torch.fused.fused_operators import FusedOperators, gate
from headway.executor.torch.fused.token_kernels import add_norm, gate_up, turn_and_write
from headway.executor.torch.layers import linear
from headway.executor.torch.layers.norm import RmsNorm
from headway.executor.torch.layers.operators import NO_NORM, TorchOperators
from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from tests.executor.torch.test_golden import all_logits

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # of numbers of size 1: bfloat16 2.5 units
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
# They cover head norms, norms over all heads, partial rotation, layers without rotation, two
# rotary tables and norm weights in float32.
SHAPES = ["qwen3-bias-mha", "olmo3", "phi4-partial", "smollm3", "gemma3"]


def made(seed, *shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def near(found, want, dtype):
    return (found.float() - want.float()).abs().max() < TOLERANCE[dtype] * (1 + want.abs().max())


@DTYPES
@pytest.mark.parametrize("wide_weight", [False, True])  # where the norm rounds
@pytest.mark.parametrize("norms", ["before", "after", "both"])
def test_the_fused_residual_sum_and_norm_equal_torchs_operators(dtype, wide_weight, norms):
    weights = [made(i, 48, dtype=torch.float32 if wide_weight else dtype) for i in (1, 2)]
    after, before = (RmsNorm(weight, 1e-6) for weight in weights)
    after = NO_NORM if norms == "before" else after
    before = NO_NORM if norms == "after" else before
    config = SimpleNamespace(scales=SimpleNamespace(residual=0.4))
    plain, fused = (each(config, [], []) for each in (TorchOperators, FusedOperators))
    x, found = made(3, 5, 48, dtype=dtype), made(4, 5, 48, dtype=dtype)
    together = fused.add_and_norm(x, found, after, before)
    for one, other in zip(together, plain.add_and_norm(x, found, after, before), strict=True):
        assert near(one, other, dtype)
    alone = fused.add_and_norm(x[2:3], found[2:3], after, before)
    assert all(torch.equal(one[0], whole[2]) for one, whole in zip(alone, together, strict=True))
    if before is not NO_NORM:
        first = fused.add_and_norm(x, None, NO_NORM, before)
        assert first[0] is x and near(first[1], before(x), dtype)


@DTYPES
@pytest.mark.parametrize("activation", ["silu", "gelu_pytorch_tanh"])
def test_the_fused_gate_equals_torchs_activation(dtype, activation):
    wide = made(5, 3, 2 * 1100, dtype=dtype)
    act = F.silu if activation == "silu" else lambda x: F.gelu(x, approximate="tanh")
    found = gate(wide, activation)
    assert near(found, act(wide[:, :1100]) * wide[:, 1100:], dtype)
    assert torch.equal(gate(wide[1:2], activation)[0], found[1])


class Heads:
    """A model's operators, plain and fused, each with a KV memory of its own."""

    def __init__(self, folder, dtype):
        name = str(dtype).removeprefix("torch.")
        both = [load(folder, Limits(), name, DEVICE.type).executor for _ in range(2)]
        self.model, self.caches = both[0].model, [each.cache for each in both]
        mine = self.model.operators
        made = (self.model.config, mine.rotary, mine.table_of_layer)
        self.plain, self.fused = TorchOperators(*made), FusedOperators(*made)

    def take_in(self, operators, cache, qkv, at):
        """Queries, keys and values of the last layer. A token's KV cell is 7 x its position."""
        i, layer = self.model.config.layers - 1, self.model.weights.layers[-1]
        step = operators.of_step(at, at * 7, cache)
        q = step.take_in(i, qkv.clone(), layer.q_norm, layer.k_norm)
        return q, cache.keys[i][at * 7], cache.values[i][at * 7]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *((shape, torch.float32) for shape in SHAPES),
        *((shape, torch.bfloat16) for shape in SHAPES[1:5:3]),  # OLMo's norms and Gemma's
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of the interpreter, for inf
def test_the_fused_kernel_norms_rotates_and_writes_heads_as_torch_does(goldens, shape, dtype):
    case = Heads(goldens[shape].folder, dtype)
    config = case.model.config
    width = (config.heads + 2 * config.kv_heads) * config.head_dim
    at, qkv = torch.tensor([0, 50], device=DEVICE), made(6, 2, width, dtype=dtype)
    want = case.take_in(case.plain, case.caches[0], qkv, at)
    found = case.take_in(case.fused, case.caches[1], qkv, at)
    assert all(near(one, other, dtype) for one, other in zip(found, want, strict=True))
    alone = case.take_in(case.fused, case.caches[0], qkv[1:2], at[1:2])
    assert all(torch.equal(one[0], whole[1]) for one, whole in zip(alone, found, strict=True))
    for name in ("keys", "values"):
        held = [getattr(cache, name)[-1] for cache in case.caches]
        assert torch.equal(held[0] == 0, held[1] == 0), "and nothing else is written"
    at, qkv = torch.tensor([3, 11, 50], device=DEVICE), qkv[[0, 0, 1]]
    qkv[0, ::2], qkv[1, ::3] = torch.nan, torch.inf
    found = case.take_in(case.fused, case.caches[1], qkv, at)
    assert all(each.isfinite().all() for each in found[1:])
    assert all(torch.equal(one[2], each[0]) for one, each in zip(found, alone, strict=True))


class Launches(TorchDispatchMode):
    """Counts operators that write memory, and our kernels. Views write no memory."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found, name = func(*args, **(kwargs or {})), func.__name__.partition(".")[0]
        read = {each.untyped_storage().data_ptr() for each in args if torch.is_tensor(each)}
        parts = found if isinstance(found, tuple | list) else [found]
        is_new = any(each.untyped_storage().data_ptr() not in read for each in parts)
        self.count += (is_new or name.endswith("_")) and "empty" not in name
        return found

    def watch(self, monkeypatch, kernel):
        """A launch of the kernel counts as one. The interpreter, which is slow, does not run it."""
        run = kernel.run

        def counted(*args, **kwargs):
            self.count += 1
            if DEVICE.type == "cuda":
                run(*args, **kwargs)

        monkeypatch.setattr(kernel, "run", counted)


def loaded(golden, monkeypatch, fused, dtype="float32"):
    """A model with paged attention, its operators plain or fused."""
    monkeypatch.setattr("headway.executor.torch.runner.attention_of", PagedAttention)
    monkeypatch.setattr(linear, "pack", lambda weight: None)
    executor = load(golden.folder, Limits(block_size=4), dtype).executor
    model = executor.model
    mine, kind = model.operators, FusedOperators if fused else TorchOperators
    model.operators = kind(model.config, mine.rotary, mine.table_of_layer)
    model.recorded = None  # it belongs to the operators that were replaced
    for layer in model.weights.layers:
        layer.mlp.gating = gate if fused else None
    return executor


# olmo3 has norms after, granite has scaled residuals, starcoder2 has LayerNorm and no gate.
@pytest.mark.parametrize("shape", ["olmo3", "granite", "starcoder2"])
def test_whole_models_with_fused_kernels_equal_transformers_logits(goldens, shape, monkeypatch):
    executor = loaded(goldens[shape], monkeypatch, fused=True)
    tokens = [5, 6, 7, 8]
    found = all_logits(executor, tokens, 3).cpu()
    assert (found - goldens[shape].logits(tokens)).abs().max() < 1e-4


# Launches of a layer in bfloat16: by torch's operators, then fused. torch's operators need 8 for
# each norm, 4 products, 2 sums, 7 to rotate the heads, 2 for the gate, 1 to make keys and values
# finite, 2 to write them, 1 for attention, and 1 to join heads that are normed separately.
LAUNCHES = {
    "qwen2-bias-tied": (2 * 8 + 19, 4 + 1 + 1 + 2 + 1),
    "qwen3-norms": (4 * 8 + 19 + 1, 9),
    "olmo3": (4 * 8 + 19 + 1, 9 + 2),  # norms over all heads are not fused
    "gemma2": (4 * 8 + 19, 9),
}


@pytest.mark.parametrize("shape", LAUNCHES)
def test_a_layer_launches_the_expected_number_of_kernels(goldens, shape, monkeypatch):
    """The count is what a second layer adds to a pass. Both passes use our attention kernels."""
    kernels = [add_norm, turn_and_write, gate_up, attend, merge]
    found = []
    for fused in (False, True):
        executor, counts = loaded(goldens[shape], monkeypatch, fused, "bfloat16"), []
        weights = executor.model.weights
        for layers in (1, 1, 2):  # once more: the first pass sends its block to the device's table
            executor.model.weights = replace(weights, layers=weights.layers[:layers])
            with pytest.MonkeyPatch.context() as patch, Launches() as launches:
                for kernel in kernels:
                    launches.watch(patch, kernel)
                all_logits(executor, [5, 6], 2)
            counts.append(launches.count)
        found.append(counts[2] - counts[1])
    assert tuple(found) == LAUNCHES[shape]
