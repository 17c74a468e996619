"""Grouped experts equal experts computed one by one, and a row alone equals itself in a batch.

Run by test_interpreted.py.
"""

import pytest
import torch

from headway.executor.torch.fused import grouped_experts
from headway.executor.torch.fused.grouped_experts import GroupedExperts
from headway.executor.torch.layers import linear
from headway.executor.torch.layers.linear import Linear
from headway.executor.torch.layers.mlp import Mixture, Mlp
from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from tests.executor.torch.test_golden import all_logits
from tests.executor.torch.test_overlapped import no_waiting

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}  # of results of size 1


def made(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def mixtures(hidden, wide, count, chosen, dtype=torch.float32):
    """The same mixture twice: expert by expert, and grouped."""

    def plain(seed, *shape):
        return Linear((made(seed, *shape) / shape[1] ** 0.5).to(DEVICE, dtype), packing=False)

    def whole():
        experts = tuple(
            Mlp(plain(i + 1, 2 * wide, hidden), plain(i + 99, hidden, wide), True, "silu")
            for i in range(count)
        )
        return Mixture(plain(0, count, hidden), experts, chosen, True, waits=True)

    one_by_one, together = whole(), whole()
    together.grouped = GroupedExperts(together.experts)
    return one_by_one, together


@pytest.mark.parametrize(
    ("hidden", "wide", "count", "chosen", "dtype"),
    [
        (12, 20, 5, 2, torch.float32),  # nothing is a multiple of a tile
        (64, 33, 4, 4, torch.float32),  # all experts
        (70, 66, 1, 1, torch.float32),  # one
        (70, 36, 6, 3, torch.bfloat16),
    ],
)
@pytest.mark.parametrize("rows", [2, 70])  # small tiles and large ones; experts without rows
def test_grouped_experts_equal_experts_run_one_by_one(hidden, wide, count, chosen, dtype, rows):
    one_by_one, together = mixtures(hidden, wide, count, chosen, dtype)
    x = made(7, rows, hidden).to(DEVICE, dtype)
    want, found = one_by_one(x).float(), together(x).float()
    assert (found - want).abs().max() < TOLERANCE[dtype] * (1 + want.abs().max())


def same(found, wanted):
    if found.is_cuda:
        return torch.equal(found, wanted)
    return (found - wanted).abs().max() < 1e-5


def test_a_row_has_the_same_result_alone_and_in_a_batch():
    """Bit for bit on a GPU while tiles have one shape; else to rounding. The interpreter multiplies
    by numpy, whose rounding may depend on a row's place in its tile."""
    grouped = mixtures(40, 24, 5, 2)[1].grouped
    x, shares = made(9, 100, 40).to(DEVICE), made(8, 100, 2).to(DEVICE)
    chosen = made(7, 100, 5).topk(2).indices.to(DEVICE)
    few = grouped(x[:30], shares[:30], chosen[:30])
    for i in (0, 29):
        one = slice(i, i + 1)
        assert same(grouped(x[one], shares[one], chosen[one])[0], few[i])
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    assert same(grouped(x[order], shares[order], chosen[order]), few[order])
    assert (grouped(x, shares, chosen)[:30] - few).abs().max() < 1e-5


def test_all_rows_may_choose_one_expert_and_a_row_of_nan_affects_no_other():
    one_by_one, together = mixtures(16, 16, 4, 1)
    x = made(9, 1, 16).repeat(70, 1).to(DEVICE)
    assert (together(x) - one_by_one(x)).abs().max() < 1e-5
    x = made(9, 6, 16).to(DEVICE)
    want = together(x)
    x[2] = torch.nan
    found, others = together(x), [0, 1, 3, 4, 5]
    assert found[2].isnan().all() and torch.equal(found[others], want[others])


def test_grouped_experts_share_the_memory_of_the_experts_weights():
    _, together = mixtures(16, 8, 4, 2)
    for stack, name in ((together.grouped.up, "gate_up"), (together.grouped.down, "down")):
        for part, expert in zip(stack, together.experts, strict=True):
            assert getattr(expert, name).weight.data_ptr() == part.data_ptr()


def test_grouped_experts_do_not_make_the_host_wait_for_the_device(monkeypatch):
    """The kernels themselves are left out: the interpreter reads all tensors on the host."""
    _, together = mixtures(16, 8, 4, 2)
    launched = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *args, **constants: launched.append(grid)

    for name in ("grouped_product", "add_up"):
        monkeypatch.setattr(grouped_experts, name, Kernel())
    with no_waiting():
        together(made(7, 9, 16).to(DEVICE))
    assert len(launched) == 3


@pytest.mark.parametrize("shape", ["mixtral-window", "qwen3-moe"])
def test_mixture_models_with_grouped_experts_equal_transformers_logits(goldens, shape, monkeypatch):
    monkeypatch.setattr(linear, "pack", lambda weight: None)
    executor = load(goldens[shape].folder, Limits(block_size=4)).executor
    for layer in executor.model.weights.layers:
        layer.mlp.grouped = GroupedExperts(layer.mlp.experts)
    tokens = [int(each) for each in torch.arange(13) * 7 % 150]
    found = all_logits(executor, tokens, 12).cpu()  # 12: mixtral's window and one more
    assert (found - goldens[shape].logits(tokens)).abs().max() < 1e-4
