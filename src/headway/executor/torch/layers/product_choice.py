"""product_choice: which product is the fastest for how many rows, measured on this machine."""

import json
import os
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # that are measured
OUTPUTS, INPUTS, MATRICES = 2_048, 1_024, 4  # together more than the nearer caches hold
ROUNDS = 3  # of all in turn, of which the fastest counts
TIE = 1.02  # as fast
STAY = 1.25  # so much slower, a kernel of ours is kept: rows have the same bits in all batches


class Kind(StrEnum):
    """Who multiplies rows in bfloat16."""

    PAIRS = "pairs"  # our kernel, by the processor's own products of pairs in bfloat16
    WIDENED = "widened"  # our kernel, in float32: rows and weights are widened
    ONEDNN = "onednn"


Product = Callable[[Tensor], object]  # of rows [n, INPUTS] with one matrix
Products = Mapping[Kind, Product]  # with the same matrix


def product_choice(library: Path, made: Callable[[Tensor], Products]) -> tuple[Kind, ...]:
    """Whose product is taken for 0, 1, 2, ... rows; the last holds for all beyond.

    Measuring takes a second, once for each build of the kernels and version of torch: the answer
    is kept in a file beside the library. made: the products with a matrix of [OUTPUTS, INPUTS].
    """
    return _product_choice(library.with_suffix(".products.json"), made)


@cache
def _product_choice(file: Path, made: Callable[[Tensor], Products]) -> tuple[Kind, ...]:
    known = _read(file)
    if torch.__version__ not in known:
        known[torch.__version__] = chosen(_measured(made))
        part = file.with_suffix(f".{os.getpid()}")
        try:
            part.write_text(json.dumps(known))
            part.replace(file)
        except OSError:
            part.unlink(missing_ok=True)  # it is measured again next time
    kinds, at = known[torch.__version__], 0
    by_rows = [kinds[0]]
    for most, kind in zip(ROWS, kinds, strict=True):
        by_rows += [kind] * (most - at)
        at = most
    return tuple(by_rows)


def _read(file: Path) -> dict[str, list[Kind]]:
    """By version of torch, for each of ROWS."""
    try:
        known = json.loads(file.read_text())
        return {
            version: [Kind(kind) for _, kind in zip(ROWS, kinds, strict=True)]
            for version, kinds in known.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def chosen(times: list[dict[Kind, int]]) -> list[Kind]:
    """The fastest for each number of rows. times: by ROWS, in any unit.

    Where two are as fast, it is ours rather than oneDNN's. Of ours, that of more rows is kept: a
    row alone has the bits of the row in a batch as long as one of our kernels computes both.
    """
    kinds, more = list[Kind](), Kind.ONEDNN
    for taken in reversed(times):
        costs = {kind: float(ns) for kind, ns in taken.items()}
        if more is not Kind.ONEDNN:
            costs[more] /= STAY
        costs[Kind.ONEDNN] *= TIE
        more = min(costs, key=costs.__getitem__)
        kinds.append(more)
    return kinds[::-1]


def _measured(made: Callable[[Tensor], Products]) -> list[dict[Kind, int]]:
    """Nanoseconds for each of ROWS."""
    drawn = torch.Generator().manual_seed(0)
    matrices = [
        made(torch.randn(OUTPUTS, INPUTS, generator=drawn).to(torch.bfloat16))
        for _ in range(MATRICES)
    ]
    x = torch.randn(max(ROWS), INPUTS, generator=drawn).to(torch.bfloat16)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_fastest(matrices, x[:rows]) for rows in ROWS]
    finally:
        torch.set_num_threads(threads)


def _fastest(matrices: list[Products], x: Tensor) -> dict[Kind, int]:
    """Nanoseconds of all matrices by each, on one thread. Its own time counts, so that others at
    work do not."""
    best = dict.fromkeys(matrices[0], 2**62)
    for _ in range(ROUNDS):
        for kind in best:
            began = time.thread_time_ns()
            for products in matrices:
                products[kind](x)
            best[kind] = min(best[kind], time.thread_time_ns() - began)
    return best
