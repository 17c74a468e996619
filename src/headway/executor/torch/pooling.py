"""Pooler: from hidden states to the vectors that requests want of their prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.batch import Begun, Row, Want
from headway.core.request import Pooling

POOLINGS = (Pooling.LAST, Pooling.MEAN)
VECTOR = Want.VECTOR.value
Hidden = Callable[[Tensor], Tensor]  # [N, hidden] before the last norm -> after it


@dataclass(slots=True)
class _Pooled:
    pooling: str
    prompt: int  # its tokens
    total: Tensor | None = None  # [hidden] float32: of a mean, the sum over earlier steps


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a step."""

    rows: tuple[int, ...] = ()
    tensors: tuple[Tensor, ...] = ()  # [hidden] float32 for each of the rows


class Pooler:
    """A prompt may take several steps. Of a mean, the sum is kept from one to the next."""

    def __init__(self) -> None:
        self._of: dict[int, _Pooled] = {}  # by sequence

    def begin(self, begun: Begun) -> None:
        """Keep how the vector of a sequence is made, if it wants one."""
        if begun.pooling:
            self._of[begun.sequence] = _Pooled(begun.pooling, begun.prompt)

    def end(self, sequence: int) -> None:
        """Drop what is kept for a sequence."""
        self._of.pop(sequence, None)

    def pool(
        self, rows: Sequence[Row], spans: NDArray[np.int64], x: Tensor, hidden: Hidden
    ) -> Vectors:
        """The vectors of those rows that want one and reach the end of their prompt.

        spans: [rows, 2] of the tokens in x. x: [N, hidden] before the last norm.
        """
        if not self._of:
            return Vectors()
        ended, vectors = list[int](), list[Tensor]()
        for i, row in enumerate(rows):
            if row.want & VECTOR:
                begin, end = spans[i].tolist()
                pooled = self._of[row.sequence]
                is_end = row.start + len(row.tokens) == pooled.prompt
                if pooled.pooling == Pooling.MEAN:
                    _add(pooled, hidden(x[begin:end]))
                if is_end:
                    ended.append(i)
                    vectors.append(_vector(pooled, x[end - 1 : end], hidden))
        return Vectors(tuple(ended), tuple(vectors))


def _add(pooled: _Pooled, states: Tensor) -> None:
    total = states.sum(dim=0, dtype=torch.float32)
    pooled.total = total if pooled.total is None else pooled.total + total


def _vector(pooled: _Pooled, last: Tensor, hidden: Hidden) -> Tensor:
    if pooled.total is not None:
        return pooled.total / pooled.prompt
    return hidden(last)[0].float()
