"""arithmetic_of: how the attention kernel multiplies on this processor."""

from enum import StrEnum
from functools import cache

import numpy as np
import torch

from headway.executor.torch.attention.items import many_items
from headway.executor.torch.attention.step_rows import StepRows
from headway.executor.torch.cpu.kept_choice import kept_choice, one_thread, own_time
from headway.executor.torch.cpu.library import Kernels

HEADS, KV_HEADS, SIZE, BLOCK = 14, 2, 64, 16  # shape of the timed call
QUERIES, KEYS = 16, 512  # the last queries of a prompt, over all its keys
ROUNDS = 9  # the fastest counts
PAYS = 0.9  # pairs must take less than this share of the time in float32, since they round more


class Arithmetic(StrEnum):
    """The kinds of arithmetic, in the order of the library's numbers (native/attention.cpp)."""

    FLOAT32 = "float32"  # float32 data
    WIDENED = "widened"  # bfloat16 data, multiplied in float32
    PAIRS = "pairs"  # bfloat16 data, multiplied by the CPU's instructions for pairs

    @property
    def number(self) -> int:
        """The library's number of it."""
        return list(Arithmetic).index(self)


@cache
def arithmetic_of(kernels: Kernels, dtype: torch.dtype) -> Arithmetic:
    """The arithmetic for keys and values of this dtype. Pairs are used if they are faster, which
    is measured once, in a few milliseconds.

    One kind serves all rows of a process, so a row gives the same bits alone and in a batch.
    """
    if dtype is torch.float32:
        return Arithmetic.FLOAT32
    if torch.bfloat16 not in kernels.dtypes:
        return Arithmetic.WIDENED
    (kind,) = kept_choice(kernels.file, "attention", Arithmetic, 1, lambda: [_faster(kernels)])
    return kind


def _faster(kernels: Kernels) -> Arithmetic:
    """The faster kind for several queries of one row, a case bound by the products."""
    best = {Arithmetic.WIDENED: 2**62, Arithmetic.PAIRS: 2**62}
    with one_thread():
        for _ in range(ROUNDS):
            for kind in best:
                best[kind] = min(best[kind], _time(kernels, kind))
    pays = best[Arithmetic.PAIRS] < PAYS * best[Arithmetic.WIDENED]
    return Arithmetic.PAIRS if pays else Arithmetic.WIDENED


def _time(kernels: Kernels, arithmetic: Arithmetic) -> int:
    """Nanoseconds of one call, on one thread."""
    blocks = KEYS // BLOCK
    cells = torch.ones(KEYS, KV_HEADS, SIZE, dtype=torch.bfloat16)
    q = torch.ones(QUERIES, HEADS, SIZE, dtype=torch.bfloat16)
    out, table = torch.empty_like(q), np.arange(blocks)
    one = np.zeros(1, dtype=np.int64)
    row = StepRows(0, one, one, one + QUERIES, one + KEYS - QUERIES, one + KEYS)
    items = many_items(row, 0, QUERIES)
    work = np.zeros(7, dtype=np.int64)  # no spans to merge
    work[:3] = table.ctypes.data, items.ctypes.data, len(items)
    shape = np.array([HEADS, KV_HEADS, SIZE, BLOCK, blocks], dtype=np.int64)
    places = cells.data_ptr(), cells.data_ptr(), work.ctypes.data
    asked = shape.ctypes.data, q.data_ptr(), q.stride(0), *places, SIZE**-0.5, 0.0, 0
    return own_time(lambda: kernels.attend(arithmetic.number, *asked, out.data_ptr(), 1))
