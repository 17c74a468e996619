"""product_choice: the fastest product for each row count, measured on this machine."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, partial
from math import inf
from pathlib import Path

import torch
from torch import Tensor

from headway.executor.torch.cpu.kept_choice import kept_choice, one_thread, own_time

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # row counts that are measured
OUTPUTS, INPUTS, MATRICES = 2_048, 1_024, 4  # together more than the nearer caches hold
ROUNDS = 5  # each round measures every kind; the fastest counts
TIE = 1.02  # oneDNN must be faster than ours by more than this factor
STAY = 1.25  # a kernel of ours is kept up to this much slower: rows keep their bits in all batches


class Kind(StrEnum):
    """What multiplies rows in bfloat16."""

    PAIRS = "pairs"  # our kernel with the CPU's instructions for pairs of bfloat16
    WIDENED = "widened"  # our kernel in float32: rows and weights are widened
    ONEDNN = "onednn"


Product = Callable[[Tensor], object]  # multiplies rows [n, INPUTS] by one matrix
Products = Mapping[Kind, Product]  # all by the same matrix


@cache
def product_choice(
    library: Path, made: Callable[[Tensor], Products], mixed: Callable[[], bool]
) -> tuple[Kind, ...]:
    """The kind of product for 0, 1, 2, ... rows; the last entry holds for all larger row counts.

    Measuring takes a second, once. made: the products by a matrix [OUTPUTS, INPUTS]. mixed:
    whether our kernels and oneDNN read the same layout, so that one matrix can use both.
    """

    def measured() -> list[Kind]:
        times = _measured(made)
        return chosen(times) if mixed() else chosen_alone(times)

    kinds = kept_choice(library, "products", Kind, len(ROWS), measured)
    by_rows, at = [kinds[0]], 0
    for most, kind in zip(ROWS, kinds, strict=True):
        by_rows += [kind] * (most - at)
        at = most
    return tuple(by_rows)


def chosen(times: list[dict[Kind, int]]) -> list[Kind]:
    """The kind to use for each row count. times: one entry per ROWS, in any unit.

    The fastest wins, with two preferences. Ours beats oneDNN within TIE. And if one of ours was
    chosen for the next larger row count, it is kept within STAY: a row has the same bits alone and
    in a batch as long as the same kernel of ours computes both.
    """
    kinds, more = list[Kind](), Kind.ONEDNN
    for taken in reversed(times):
        costs = {kind: float(ns) for kind, ns in taken.items()}
        if more is not Kind.ONEDNN:
            costs[more] /= STAY
        costs[Kind.ONEDNN] = costs.get(Kind.ONEDNN, inf) * TIE
        more = min(costs, key=costs.__getitem__)
        kinds.append(more)
    return kinds[::-1]


def chosen_alone(times: list[dict[Kind, int]]) -> list[Kind]:
    """As chosen, if oneDNN must multiply all row counts or none: our kernels, unless one of them
    takes more than STAY times oneDNN's time."""
    ours: list[dict[Kind, int]] = [
        {kind: ns for kind, ns in each.items() if kind is not Kind.ONEDNN} for each in times
    ]
    kinds = chosen(ours)
    pairs = zip(kinds, times, strict=True)
    stays = all(each[kind] <= STAY * each[Kind.ONEDNN] for kind, each in pairs)
    return kinds if stays else [Kind.ONEDNN] * len(times)


def _measured(made: Callable[[Tensor], Products]) -> list[dict[Kind, int]]:
    """Nanoseconds by kind, for each of ROWS."""
    drawn = torch.Generator().manual_seed(0)
    matrices = [
        made(torch.randn(OUTPUTS, INPUTS, generator=drawn).to(torch.bfloat16))
        for _ in range(MATRICES)
    ]
    x = torch.randn(max(ROWS), INPUTS, generator=drawn).to(torch.bfloat16)
    with one_thread():
        return [_fastest(matrices, x[:rows]) for rows in ROWS]


def _fastest(matrices: list[Products], x: Tensor) -> dict[Kind, int]:
    """Nanoseconds by kind for multiplying by all matrices, on one thread."""
    best = dict.fromkeys(matrices[0], 2**62)
    for _ in range(ROUNDS):
        for kind in best:
            best[kind] = min(best[kind], own_time(partial(_multiply, matrices, kind, x)))
    return best


def _multiply(matrices: list[Products], kind: Kind, x: Tensor) -> None:
    for products in matrices:
        products[kind](x)
