"""Applies grammars to logits, for all rows at once: each row keeps only its allowed tokens."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from headway.executor.grammars.grammar import Matcher
from headway.executor.grammars.masks import token_bitmasks
from headway.executor.torch.memory.transfer import send
from headway.executor.torch.sampling.penalties import EXCLUDED


def apply_grammars(logits: Tensor, matchers: Mapping[int, Matcher]) -> Tensor:
    """A copy of logits [n, vocab] with -inf for the tokens that a row's grammar does not allow.
    Without grammars, the logits themselves. matchers: by row."""
    if not matchers:
        return logits
    masks = token_bitmasks(tuple(matchers.values()), logits.shape[1])
    bits, at = send(logits.device, masks, np.array(list(matchers), dtype=np.int64))
    allowed = unpack_bits(bits)
    logits = logits.clone()
    logits[at] = logits[at].masked_fill_(~allowed[:, : logits.shape[1]], EXCLUDED)
    return logits


def unpack_bits(bits: Tensor) -> Tensor:
    """Bits to booleans: int32 [n, words] -> [n, 32 x words]."""
    of_byte = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return ((bits.view(torch.uint8).unsqueeze(-1) >> of_byte) & 1).bool().flatten(1)
