"""Bit masks, on the host, of the tokens that grammars allow: one bit per token, lowest first."""

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headway.executor.grammars.grammar import Matcher

if TYPE_CHECKING:
    from llguidance import LLExecutor

Bits = NDArray[np.int32]


def token_bitmasks(matchers: tuple[Matcher, ...], vocab: int) -> Bits:
    """One mask per matcher, int32 [n, words], computed in parallel.

    A matcher that cannot continue, or reaches llguidance's limits, gets its error set.
    """
    bits = np.zeros((len(matchers), -(-vocab // 32)), dtype=np.int32)
    pairs = [(each.state, row) for row, each in enumerate(matchers)]
    _threads().unsafe_compute_mask_ptr(pairs, bits.ctypes.data, 4 * bits.shape[1], len(matchers))
    for each in matchers:
        each.check()
    return bits


def without_tokens(bits: Bits, tokens: Iterable[int], vocab: int) -> None:
    """Clear these tokens' bits in one mask [words], in place."""
    for token in tokens:
        if token < vocab:
            bits.view(np.uint32)[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)


def allow_nothing(bits: Bits) -> bool:
    """Whether a mask [words] allows no token."""
    return not bits.any()


@cache
def _threads() -> "LLExecutor":
    """llguidance's thread pool: one per process, created for the first mask."""
    from llguidance import LLExecutor

    return LLExecutor()
