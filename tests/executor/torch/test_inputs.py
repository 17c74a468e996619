"""The inputs built for a step: the order of rows, and no more data than the step reads."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.core.batch import Batch, Begun, Row, Want
from headway.core.sampling import Sampling
from headway.executor.grammars.grammar import GrammarCompiler
from headway.executor.torch.attention.gathered import GatheredAttention
from headway.executor.torch.attention.items import many_items, single_items
from headway.executor.torch.attention.step_rows import StepRows
from headway.executor.torch.config.model_config import read_config
from headway.executor.torch.inputs import InputsBuilder
from headway.executor.torch.memory.kv_cache import KVCache
from headway.executor.torch.slots import Slots
from headway.models import EMBEDDED

BLOCK, ROWS, LONG = 16, 512, 100_000


def builder_of():
    """An inputs builder of the embedded model, and its slots."""
    config, cpu = read_config(EMBEDDED), torch.device("cpu")
    cache = KVCache(config, 1, BLOCK, torch.float32, cpu)  # its cells are not read
    slots = Slots(LONG // BLOCK + 1, GrammarCompiler(Path(), config.vocab, frozenset()), cpu)
    attention = GatheredAttention(config, cache, slots.tables)
    return InputsBuilder(slots, attention, BLOCK, config.vocab), slots


def test_sampled_rows_are_listed_in_the_order_of_their_tokens():
    builder, slots = builder_of()
    for number in range(4):
        slots.begin(Begun(number, 10, Sampling()))
        slots.extend(slots.of[number], tuple(range(10 * number + 1, 10 * number + 6)))
    rows = (
        Row(0, 33, (7,), (), Want.LAST),
        Row(1, 0, (5, 6), (), Want.LAST),
        Row(2, 20, (8,), (), Want.LAST),
        Row(3, 5, (9, 10, 11), (), Want.NOTHING),
    )
    inputs = builder.build(Batch(1, rows))
    assert inputs.tokens.tolist() == [8, 7, 5, 6, 9, 10, 11]
    assert inputs.positions.tolist() == [20, 33, 0, 1, 5, 6, 7]
    assert inputs.cells.tolist() == [22 * 16 + 4, 3 * 16 + 1, 176, 177, 501, 502, 503]
    assert inputs.spans.tolist() == [[1, 2], [2, 4], [0, 1], [4, 7]]
    assert (inputs.sampled, inputs.at.tolist()) == ((2, 0, 1), [0, 1, 3])
    assert inputs.slots.tolist() == [slots.of[2], slots.of[0], slots.of[1]]


@pytest.mark.parametrize(
    "particular",
    [
        Sampling(temperature=1.0),
        Sampling(logprobs=0),
        Sampling(stop_tokens=frozenset({3}), min_tokens=20),
        Sampling(presence_penalty=1.0),
    ],
)
def test_a_step_is_greedy_unless_one_of_its_rows_needs_more(particular):
    builder, slots = builder_of()
    rows = tuple(Row(number, 10, (7,), (), Want.LAST) for number in range(2))

    def greedy(batch):
        draws = builder.build(batch).draws
        assert all(len(draws.temperature) == len(each) for each in (draws.seeds, draws.logprobs))
        return draws.plain, draws.greedy

    for number in range(2):
        slots.begin(Begun(number, 10, Sampling(stop_tokens=frozenset({3}))))
        slots.extend(slots.of[number], (1,))
    assert greedy(Batch(1, rows)) == (True, True)
    slots.end(1)
    slots.begin(Begun(1, 10, particular, (1,) * 10))
    slots.extend(slots.of[1], (1,))
    assert greedy(Batch(2, rows)) == (False, False)
    assert greedy(Batch(3, rows[:1])) == (False, True)
    slots.end(1)
    assert greedy(Batch(4, rows[:1])) == (True, True)


@pytest.mark.parametrize("keys", [[], [1], [3, 256], [3, 257], [255, 256, 600]])
def test_items_without_a_window_equal_those_of_a_window_over_all_keys(keys):
    count = len(keys)
    columns = np.arange(5, 5 + count), np.arange(count), np.ones(count, dtype=np.int64)
    rows = StepRows(count, *columns, np.array(keys, dtype=np.int64) - 1, np.array(keys, np.int64))
    plain, windowed = single_items(rows, 0, 256), single_items(rows, 4096, 256)
    assert all(np.array_equal(*pair) for pair in zip(plain, windowed, strict=True))
    assert plain[0].shape[1] == 8 and plain[1].shape[1] == 3
    assert many_items(rows, 0, 16).shape == (0, 8)


def test_one_long_row_does_not_widen_the_block_tables_of_others():
    """512 tables as wide as the longest once took 51 MB in each step."""
    builder, slots = builder_of()
    rows = []
    for number in range(ROWS):
        start = LONG if number == 9 else 40
        slots.begin(Begun(number, 10, Sampling()))
        slots.extend(slots.of[number], tuple(range(1, start // BLOCK + 2)))
        rows.append(Row(number, start, (7,), (), Want.LAST))
    batch = Batch(1, tuple(rows))
    builder.build(batch)
    tracemalloc.start()
    try:
        inputs = builder.build(batch)
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
    *near, far = inputs.attention.decodes
    assert far.end - far.begin == 1 and len(far.blocks) == LONG // BLOCK + 1
    assert {tuple(own) for each in near for own in each.blocks.view(-1, 3).tolist()} == {(1, 2, 3)}
