"""The paged kernels equal torch's operators, and a row alone equals itself in a batch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.executor.torch.attention.paged import PagedAttention
from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from tests.executor.torch.test_golden import all_logits

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
EDGES = [1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 513]
CHUNKS = [(0, 2), (0, 33), (7, 9), (256, 5), (250, 70)]


def check(stage, singles, many=(), layer=0):
    cache, tables, rows = stage.lay_out(singles, many)
    want, found = stage.both(cache, tables, rows, layer)
    assert (found - want).abs().max() < TOLERANCE[stage.dtype]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block"),
    # groups of 1, 2, 4, 7 and 9; head dimensions that are no powers of two; blocks of odd sizes
    [(2, 2, 64, 16), (4, 2, 16, 4), (8, 2, 128, 16), (7, 1, 12, 3), (9, 1, 96, 32), (4, 1, 256, 1)],
)
def test_decode_and_prefill_rows_share_a_step(stage, heads, kv_heads, head_dim, block):
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "block": block}
    check(stage(**shape), [17, 300], CHUNKS[2:4])


def test_lengths_at_edges_of_blocks_tiles_and_spans_equal_torchs_attention(stage):
    check(stage(), EDGES)
    check(stage(), [], CHUNKS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_equals_torchs_attention(stage, dtype):
    check(stage(dtype=dtype, head_dim=64, block=16), [1, 400], CHUNKS[1:4])


@pytest.mark.parametrize("window", [1, 5, 256])
def test_a_sliding_window_hides_the_keys_before_it(stage, window):
    made = stage(windows=(window, 0))
    check(made, [5, 16, 65, 256, 257, 513], CHUNKS[2:])
    check(made, [5, 300], CHUNKS[3:4], layer=1)


@pytest.mark.parametrize("window", [0, 40])
def test_soft_capped_scores_equal_torchs_attention(stage, window):
    check(stage(cap=2.0, windows=(window,)), [1, 30, 270], CHUNKS)


def test_a_row_has_the_same_result_alone_and_in_a_batch(stage):
    """Bit for bit: neither tiles nor spans depend on the other rows."""
    made = stage()
    cache, tables, rows = made.lay_out([5, 257, 600], CHUNKS)
    q = made.random(rows.queries.sum(), 4, 16)
    attention = made.paged(made.config, cache, tables)
    together = attention.of_step(rows).attend(0, q)
    for i, (begin, count) in enumerate(zip(rows.begins, rows.queries, strict=True)):
        one = replace(
            rows,
            singles=int(i < rows.singles),
            **{name: getattr(rows, name)[i : i + 1] for name in ("slots", "queries", "starts")},
            keys=rows.keys[i : i + 1],
            begins=np.zeros(1, dtype=np.int64),
        )
        alone = attention.of_step(one).attend(0, q[begin : begin + count])
        assert torch.equal(alone, together[begin : begin + count])


def test_padding_after_a_row_attends_to_the_keys_of_the_rows_last_token(stage):
    made = stage(windows=(0, 3))
    cache, tables, rows = made.lay_out([], [(0, 6), (9, 12)])
    padded = replace(rows, keys=rows.keys - 2)  # the last two queries of each are padding
    for layer in (0, 1):
        want, found = made.both(cache, tables, padded, layer)
        assert (found - want).abs().max() < 2e-5


def test_no_work_tensor_is_as_large_as_rows_times_context(stage, monkeypatch):
    made = stage()
    cache, tables, rows = made.lay_out([1] * 20 + [500], [(440, 60)])
    step = made.paged(made.config, cache, tables).of_step(rows)
    held = sum(each.numel() for work in step.work.values() for each in (work.singles, work.many))
    assert held < 8 * (21 + 2 + 60) and step.work[0].partials == 2


@settings(max_examples=8)
@given(data=st.data())
def test_any_mix_of_rows_equals_torchs_attention(stage, data):
    shape = {
        "block": data.draw(st.sampled_from([1, 3, 8])),
        "windows": (data.draw(st.sampled_from([0, 7, 90])),),
        "cap": data.draw(st.sampled_from([0.0, 5.0])),
    }
    singles = data.draw(st.lists(st.integers(1, 300), max_size=4))
    chunks = st.tuples(st.integers(0, 90), st.integers(2, 40))
    many = data.draw(st.lists(chunks, min_size=int(not singles), max_size=2))
    check(stage(**shape), singles, many)


@pytest.mark.parametrize("shape", ["gemma2", "mixtral-window"])
def test_whole_models_compute_transformers_logits_through_the_kernels(goldens, shape, monkeypatch):
    monkeypatch.setattr("headway.executor.torch.runner.attention_of", PagedAttention)
    executor = load(goldens[shape].folder, Limits(block_size=4)).executor
    tokens = [int(each) for each in torch.arange(24) * 7 % 150]
    for chunk in (24, 13):
        found = all_logits(executor, tokens, chunk)
        assert (found - goldens[shape].logits(tokens)).abs().max() < 1e-4
