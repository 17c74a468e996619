"""The inputs built for a step are no larger than what the step reads."""

import tracemalloc
from pathlib import Path

import torch

from headway.core.batch import Batch, Begun, Row, Want
from headway.core.sampling import Sampling
from headway.executor.grammars.grammar import GrammarCompiler
from headway.executor.torch.attention.gathered import GatheredAttention
from headway.executor.torch.config.model_config import read_config
from headway.executor.torch.inputs import InputsBuilder
from headway.executor.torch.memory.kv_cache import KVCache
from headway.executor.torch.slots import Slots
from headway.models import EMBEDDED

BLOCK, ROWS, LONG = 16, 512, 100_000


def test_one_long_row_does_not_widen_the_block_tables_of_others():
    """Once 512 tables as wide as the longest took 51 MB in each step."""
    config, cpu = read_config(EMBEDDED), torch.device("cpu")
    cache = KVCache(config, 1, BLOCK, torch.float32, cpu)  # whose cells are not read
    slots = Slots(LONG // BLOCK + 1, GrammarCompiler(Path(), config.vocab, frozenset()), cpu)
    attention = GatheredAttention(config, cache, slots.tables)
    builder, rows = InputsBuilder(slots, attention, BLOCK, config.vocab), []
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
