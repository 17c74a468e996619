"""Pooler: turns a prompt's hidden states into the vector that its request asked for."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.batch import Begun, Row, Want
from headway.core.request import Pooling

VECTOR = Want.VECTOR.value
Map = Callable[[Tensor], Tensor]


@dataclass(slots=True)
class _Pooled:
    pooling: str
    prompt: int  # its length in tokens
    total: Tensor | None = None  # [hidden] float32: sum or maximum over its tokens so far


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a step."""

    rows: tuple[int, ...] = ()
    tensors: tuple[Tensor, ...] = ()  # [width] float32 for each of the rows


class Pooler:
    """Pools prompts, each over one or more steps. Running totals are kept between steps."""

    def __init__(self, hidden: Map, scores: Map, embed: Map) -> None:
        """hidden: [N, hidden] before the last norm -> after it. scores: the same input -> the
        labels' scores. embed: the pooled [1, hidden] float32 -> the embedding, [1, width]."""
        self._hidden, self._scores, self._embed = hidden, scores, embed
        self._of: dict[int, _Pooled] = {}  # by sequence

    def begin(self, begun: Begun) -> None:
        """Note how to pool a sequence, if it wants a vector."""
        if begun.pooling:
            self._of[begun.sequence] = _Pooled(begun.pooling, begun.prompt)

    def end(self, sequence: int) -> None:
        """Drop a sequence's state."""
        self._of.pop(sequence, None)

    def pool(self, rows: Sequence[Row], spans: NDArray[np.int64], x: Tensor) -> Vectors:
        """The vectors of the rows that want one and reach the end of their prompt in this step.

        spans: [rows, 2], each row's begin and end in x. x: [N, hidden] before the last norm.
        """
        if not self._of:
            return Vectors()
        ended, vectors = list[int](), list[Tensor]()
        for i, row in enumerate(rows):
            if row.want & VECTOR:
                begin, end = spans[i].tolist()
                pooled = self._of[row.sequence]
                if pooled.pooling not in (Pooling.LAST, Pooling.HEAD):
                    _add(pooled, self._hidden(x[begin:end]).float(), row.start)
                if row.start + len(row.tokens) == pooled.prompt:
                    ended.append(i)
                    vectors.append(self._vector(pooled, x[end - 1 : end]))
        return Vectors(tuple(ended), tuple(vectors))

    def _vector(self, pooled: _Pooled, last: Tensor) -> Tensor:
        if pooled.pooling == Pooling.HEAD:
            return self._scores(last)[0]
        if pooled.total is None:
            return self._embed(self._hidden(last).float())[0]
        return self._embed((pooled.total / _divisor(pooled))[None])[0]


def _add(pooled: _Pooled, states: Tensor, start: int) -> None:
    """Add the states [n, hidden] of tokens from position `start` on."""
    total = pooled.total
    if pooled.pooling == Pooling.MAX:
        largest = states.amax(dim=0)
        pooled.total = largest if total is None else torch.maximum(total, largest)
        return
    if pooled.pooling == Pooling.WEIGHTED:
        weights = torch.arange(start + 1, start + 1 + len(states), device=states.device)
        states = states * weights[:, None]
    added = states.sum(dim=0)
    pooled.total = added if total is None else total + added


def _divisor(pooled: _Pooled) -> float:
    """What the total is divided by to give the vector."""
    n = pooled.prompt
    match pooled.pooling:
        case Pooling.MEAN:
            return n
        case Pooling.ROOT:
            return math.sqrt(n)
        case Pooling.WEIGHTED:
            return n * (n + 1) / 2
        case _:
            return 1
