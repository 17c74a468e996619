"""Grammars applied to logits: the tokens that each row may continue with, for all rows at once."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headway.executor.torch.sampling.grammar import Matcher
from headway.executor.torch.sampling.penalties import EXCLUDED

if TYPE_CHECKING:
    from llguidance import LLExecutor


def apply_grammars(logits: Tensor, matchers: Mapping[int, Matcher]) -> Tensor:
    """A copy of logits [n, vocab] with -inf where a row's grammar does not allow a token."""
    if not matchers:
        return logits
    allowed = unpack_bits(
        token_bitmasks(tuple(matchers.values()), logits.shape[1]).to(logits.device)
    )
    at = torch.tensor(list(matchers), device=logits.device)
    logits = logits.clone()
    logits[at] = logits[at].masked_fill_(~allowed[:, : logits.shape[1]], EXCLUDED)
    return logits


def token_bitmasks(matchers: tuple[Matcher, ...], vocab: int) -> Tensor:
    """A bit per token, the lowest first: int32 [n, words], on the host. Computed in parallel.

    A matcher that reaches llguidance's limits has its error set.
    """
    bits = torch.zeros((len(matchers), -(-vocab // 32)), dtype=torch.int32)
    pairs = [(each.state, row) for row, each in enumerate(matchers)]
    _threads().unsafe_compute_mask_ptr(pairs, bits.data_ptr(), 4 * bits.shape[1], len(matchers))
    for each in matchers:
        each.check()
    return bits


def unpack_bits(bits: Tensor) -> Tensor:
    """Bits to booleans: int32 [n, words] -> [n, 32 x words]."""
    of_byte = torch.tensor([1 << i for i in range(8)], dtype=torch.uint8, device=bits.device)
    return (bits.view(torch.uint8).unsqueeze(-1) & of_byte).bool().flatten(1)


@cache
def _threads() -> "LLExecutor":
    """llguidance's thread pool, one for the process, made with the first mask."""
    from llguidance import LLExecutor

    return LLExecutor()
