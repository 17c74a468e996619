"""few_rows: up to how many rows our kernel is faster than oneDNN, measured on this machine."""

import json
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # that are tried, as long as ours is the faster
OUTPUTS, INPUTS, MATRICES = 2_048, 1_024, 4  # together more than the nearer caches hold
ROUNDS = 3  # of both in turn, of which the fastest counts
TIE = 1.02  # as fast: ours is taken, with which a row alone has the bits of the row in a batch

Product = Callable[[Tensor], object]  # of rows [n, INPUTS] with one of the matrices
Pair = tuple[Product, Product]  # ours and oneDNN's, with the same matrix


def few_rows(library: Path, made: Callable[[Tensor], Pair]) -> int:
    """The most rows of ROWS up to which ours is never the slower; 0 if it is with the fewest.

    It takes half a second, once for each build of the kernels and version of torch: the
    answer is kept in a file beside the library. made: both products with a matrix of
    [OUTPUTS, INPUTS].
    """
    return _few_rows(library.with_suffix(".rows.json"), made)


@cache
def _few_rows(file: Path, made: Callable[[Tensor], Pair]) -> int:
    known = _read(file)
    if torch.__version__ not in known:
        known[torch.__version__] = _measured(made)
        part = file.with_suffix(f".{os.getpid()}")
        try:
            part.write_text(json.dumps(known))
            part.replace(file)
        except OSError:
            part.unlink(missing_ok=True)  # it is measured again next time
    return known[torch.__version__]


def _read(file: Path) -> dict[str, int]:
    """By version of torch."""
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _measured(made: Callable[[Tensor], Pair]) -> int:
    drawn = torch.Generator().manual_seed(0)
    matrices = [
        made(torch.randn(OUTPUTS, INPUTS, generator=drawn).to(torch.bfloat16))
        for _ in range(MATRICES)
    ]
    x = torch.randn(max(ROWS), INPUTS, generator=drawn).to(torch.bfloat16)
    threads, won = torch.get_num_threads(), 0
    torch.set_num_threads(1)
    try:
        for rows in ROWS:
            ours, theirs = _fastest(matrices, x[:rows])
            if ours > TIE * theirs:
                break
            won = rows
    finally:
        torch.set_num_threads(threads)
    return won


def _fastest(matrices: list[Pair], x: Tensor) -> tuple[int, int]:
    """Nanoseconds of all products, by ours and by oneDNN, on one thread. Its own time counts, so
    that others at work do not."""
    best = [2**62, 2**62]
    for _ in range(ROUNDS):
        for which in (0, 1):
            began = time.thread_time_ns()
            for pair in matrices:
                pair[which](x)
            best[which] = min(best[which], time.thread_time_ns() - began)
    return best[0], best[1]
