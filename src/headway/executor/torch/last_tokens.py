"""LastTokens: each slot's last sampled token, on the device."""

import torch
from torch import Tensor


class LastTokens:
    """Lets a step start before the host knows the tokens that the previous step sampled.

    The device runs steps in order, so a slot's last token is in place when the next step reads it.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        self._tokens = torch.zeros(slots, dtype=torch.int64, device=device)

    def keep(self, slots: Tensor, picked: Tensor, most: int) -> None:
        """Store the tokens [n] sampled in slots [n]; -1 (no token) becomes 0. most: all slots."""
        if most > len(self._tokens):
            self._tokens = torch.cat(
                (self._tokens, self._tokens.new_zeros(most - len(self._tokens)))
            )
        self._tokens.index_copy_(0, slots, picked.clamp_min(0))

    def fill(self, tokens: Tensor, at: Tensor, slots: Tensor) -> None:
        """Write the last tokens of slots [n] to indices `at` [n] of tokens [N], in place."""
        tokens.index_copy_(0, at, self._tokens[slots])
