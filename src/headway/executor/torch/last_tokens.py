"""LastTokens: the token that was sampled last in each slot, on the device."""

import torch
from torch import Tensor


class LastTokens:
    """Lets a step begin before the host knows the tokens of the step before it.

    A slot's token is that of the last step in which its row sampled. The device computes one step
    after the other, so it is there when the next step reads it.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        self._tokens = torch.zeros(slots, dtype=torch.int64, device=device)

    def keep(self, slots: Tensor, picked: Tensor, most: int) -> None:
        """Note the tokens [n] sampled in slots [n]; -1 (no token) becomes 0. most: slots in all."""
        if most > len(self._tokens):
            self._tokens = torch.cat(
                (self._tokens, self._tokens.new_zeros(most - len(self._tokens)))
            )
        self._tokens.index_copy_(0, slots, picked.clamp_min(0))

    def fill(self, tokens: Tensor, at: Tensor, slots: Tensor) -> None:
        """Put the last tokens of slots [n] at places [n] of tokens [N], in place."""
        tokens.index_copy_(0, at, self._tokens[slots])
