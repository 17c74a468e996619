"""Attention by our CPU kernel equals torch's operators, and a row does not depend on others."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headway.core.cost.gathering import Gathering
from headway.executor.torch.attention import cpu_arithmetic
from headway.executor.torch.attention.choose import attention_of
from headway.executor.torch.attention.cpu_arithmetic import Arithmetic, arithmetic_of
from headway.executor.torch.attention.cpu_attention import SPAN, CpuAttention, attends
from headway.executor.torch.attention.gathered import GatheredAttention
from headway.executor.torch.attention.step_rows import StepRows
from headway.executor.torch.memory.kv_cache import KVCache

BLOCK = 16
KEYS = sorted([1, 7, 16, 17, 63, 64, 65, 300, SPAN, SPAN + 1, 2 * SPAN + 77])
# For results of up to 4: one rounding of each result; for pairs, one of the shares too.
APART = {Arithmetic.FLOAT32: 1e-5, Arithmetic.WIDENED: 2**-7, Arithmetic.PAIRS: 2**-6}


class Cache:
    """Random keys and values of one layer."""

    gather = KVCache.gather

    def __init__(self, blocks, heads, size, dtype, window, stream):
        shape = ((blocks + 1) * BLOCK, heads, size)
        self.keys, self.values = (
            [torch.randn(shape, generator=stream).to(dtype)] for _ in range(2)
        )
        self.heads, self.head_dim, self.block_size, self.windows = heads, size, BLOCK, [window]
        self.gathering, self._work = Gathering(BLOCK, 64), torch.empty(0, 0, dtype=dtype)

    def wide(self):
        """This cache in float32. In bfloat16, torch would round capped scores."""
        self.keys, self.values = ([each[0].float()] for each in (self.keys, self.values))
        self._work = self._work.float()
        return self


def drawn(heads, kv_heads, size, dtype, window=0, cap=0.0, keys=KEYS):
    """A config, its KV cache, block tables in random order, and one random query for each row."""
    stream = torch.Generator().manual_seed(heads * size)
    needs = [-(-each // BLOCK) for each in keys]
    cache = Cache(sum(needs), kv_heads, size, dtype, window, stream)
    order = torch.randperm(sum(needs), generator=stream).numpy() + 1
    table = np.zeros((len(keys), max(needs) + 3), dtype=np.int64)
    for i, need in enumerate(needs):
        table[i, :need], order = order[:need], order[need:]
    config = SimpleNamespace(
        heads=heads,
        head_dim=size,
        scales=SimpleNamespace(scores=size**-0.5, scores_cap=cap),
        layer_attention=[SimpleNamespace(window=window)],
    )
    q = torch.randn(len(keys), heads, size, generator=stream).to(dtype)
    return config, cache, SimpleNamespace(host=table), q


def by(arithmetic, built, config, cache, tables):
    """Our attention, with this arithmetic. A library without pairs computes them widened."""
    ours = CpuAttention(config, cache, tables, built)
    ours.arithmetic = arithmetic.number
    return ours


def dtype_of(arithmetic):
    return torch.float32 if arithmetic is Arithmetic.FLOAT32 else torch.bfloat16


def rows_of(keys, slots):
    count, ends = len(keys), np.array(keys)
    return StepRows(count, slots, np.arange(count), np.ones(count, dtype=int), ends - 1, ends)


@pytest.mark.parametrize("arithmetic", APART)
@pytest.mark.parametrize(
    "heads, kv_heads, size", [(14, 2, 64), (8, 8, 128), (9, 3, 16), (12, 1, 256)]
)
@pytest.mark.parametrize("window, cap", [(0, 0.0), (37, 0.0), (0, 5.0), (1500, 5.0)])
def test_decode_attention_equals_torchs_and_a_row_alone_has_the_same_bits(
    built, arithmetic, heads, kv_heads, size, window, cap
):
    dtype = dtype_of(arithmetic)
    config, cache, tables, q = drawn(heads, kv_heads, size, dtype, window, cap)
    rows = rows_of(KEYS, np.arange(len(KEYS)))
    ours = by(arithmetic, built, config, cache, tables)
    found = ours.of_step(rows).attend(0, q)
    for i in (0, 5, len(KEYS) - 1):
        alone = ours.of_step(rows_of(KEYS[i : i + 1], np.array([i]))).attend(0, q[i : i + 1])
        assert torch.equal(alone[0], found[i])
    theirs = GatheredAttention(config, cache.wide(), tables)
    expected = theirs.of_step(rows).attend(0, q.float())
    assert found.dtype is dtype and (found.float() - expected).abs().max() <= APART[arithmetic]


def test_a_non_finite_query_does_not_change_other_rows(built):
    config, cache, tables, q = drawn(4, 2, 32, torch.float32, keys=[3, 40])
    step = CpuAttention(config, cache, tables, built).of_step(rows_of([3, 40], np.arange(2)))
    before = step.attend(0, q)
    q[0, 1, 2] = float("nan")
    assert torch.equal(step.attend(0, q)[1], before[1])


def test_scores_far_apart_do_not_overflow(built):
    config, cache, tables, q = drawn(4, 2, 32, torch.float32, keys=[3, 200])
    rows = rows_of([3, 200], np.arange(2))
    expected = GatheredAttention(config, cache, tables).of_step(rows).attend(0, q * 1e3)
    found = CpuAttention(config, cache, tables, built).of_step(rows).attend(0, q * 1e3)
    assert (found - expected).abs().max() < 1e-4


MANY = [(0, 0, 40), (1, 8, 25), (2, 33, 67), (3, 0, 130), (4, 299, 2)]  # slot, start, queries


@pytest.mark.parametrize("arithmetic", APART)
@pytest.mark.parametrize("heads, kv_heads, size", [(14, 2, 64), (3, 3, 32), (20, 1, 80)])
@pytest.mark.parametrize("window, cap", [(0, 0.0), (20, 0.0), (0, 5.0), (100, 5.0)])
def test_prefill_and_decode_rows_in_one_step_equal_torchs_attention(
    built, arithmetic, heads, kv_heads, size, window, cap
):
    dtype = dtype_of(arithmetic)
    keys = [start + queries for _, start, queries in MANY]
    config, cache, tables, _ = drawn(heads, kv_heads, size, dtype, window, cap, keys)
    order = [(0, 7, 1), (3, 120, 1), *MANY]
    slots, starts, queries = (np.array(each) for each in zip(*order, strict=True))
    begins = queries.cumsum() - queries
    rows = StepRows(2, slots, begins, queries, starts, starts + queries)
    stream = torch.Generator().manual_seed(2)
    q = torch.randn(int(queries.sum()), heads, size, generator=stream).to(dtype)
    ours = by(arithmetic, built, config, cache, tables)
    found = ours.of_step(rows).attend(0, q)
    begin, end = begins[4], begins[4] + queries[4]
    alone = StepRows(0, slots[4:5], np.array([0]), queries[4:5], starts[4:5], rows.keys[4:5])
    assert torch.equal(ours.of_step(alone).attend(0, q[begin:end]), found[begin:end])
    theirs = GatheredAttention(config, cache.wide(), tables)
    expected = theirs.of_step(rows).attend(0, q.float())
    assert (found.float() - expected).abs().max() <= APART[arithmetic]


def test_head_sizes_without_a_kernel_use_torchs_attention(built, monkeypatch):
    module = "headway.executor.torch.attention.choose.kernels"
    for size, kind in ((64, CpuAttention), (24, GatheredAttention)):
        config, cache, tables, _ = drawn(4, 2, size, torch.float32, keys=[3])
        monkeypatch.setattr(module, lambda: built)
        assert attends(built, size) is (kind is CpuAttention)
        assert type(attention_of(config, cache, tables)) is kind
    monkeypatch.setattr(module, lambda: None)
    config, cache, tables, _ = drawn(4, 2, 64, torch.float32, keys=[3])
    assert type(attention_of(config, cache, tables)) is GatheredAttention


class Library:
    """A kernel library with or without products of pairs."""

    def __init__(self, file, pairs=True):
        self.file, self.dtypes = file, {torch.bfloat16} if pairs else set()


def test_the_faster_arithmetic_is_measured_once_and_kept(monkeypatch, tmp_path):
    times = {Arithmetic.WIDENED: 100, Arithmetic.PAIRS: 91}
    monkeypatch.setattr(cpu_arithmetic, "_time", lambda kernels, kind: times[kind])

    def chosen(name, dtype=torch.bfloat16, pairs=True):
        return arithmetic_of(Library(tmp_path / name, pairs), dtype)

    assert chosen("a.so") is Arithmetic.WIDENED, "nearly as fast does not pay"
    times[Arithmetic.PAIRS] = 89
    assert chosen("b.so") is Arithmetic.PAIRS
    assert chosen("a.so") is Arithmetic.WIDENED, "it was kept"
    assert chosen("c.so", pairs=False) is Arithmetic.WIDENED
    assert chosen("c.so", torch.float32) is Arithmetic.FLOAT32


def test_measuring_each_arithmetic_gives_a_positive_time(built):
    kinds = [Arithmetic.WIDENED, Arithmetic.PAIRS][: 1 + (torch.bfloat16 in built.dtypes)]
    assert all(cpu_arithmetic._time(built, kind) > 0 for kind in kinds)
