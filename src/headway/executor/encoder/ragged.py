"""Attention over texts laid end to end without padding (attend). transformers calls it.

tokens  | text 0 | text 1       | text 2 |      [1, heads, N, head_dim]
         each attends to its own text only
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

NAME = "headway_ragged"  # registered with transformers


@dataclass(frozen=True, slots=True)
class Texts:
    """Where the texts of a step are. Texts of the same length are attended to together."""

    starts: Tensor  # [R] each text's first token
    lengths: Tensor  # [R]
    groups: tuple[tuple[tuple[int, ...], int], ...]  # (the texts' first tokens, their length)

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> "Texts":
        """Lay out texts of these lengths, in order."""
        by_length = defaultdict[int, list[int]](list)
        starts, at = list[int](), 0
        for length in lengths:
            by_length[length].append(at)
            starts.append(at)
            at += length
        groups = [(tuple(each), length) for length, each in by_length.items()]
        made = torch.tensor([starts, list(lengths)], device=device)
        return cls(made[0], made[1], tuple(groups))


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    texts: Texts,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend within each text: [1, heads, N, head_dim] each -> [1, N, heads, head_dim], no weights.

    sliding_window: a token attends to tokens less than this far away, in both directions.
    """
    assert attention_mask is None, "texts have no padding"
    heads, count, size = query.shape[1:]
    found = query.new_empty(1, count, heads, size)
    grouped = key.shape[1] != heads
    for starts, length in texts.groups:
        # [texts of this length, heads, length, head_dim] each, after cat
        parts = [[each[:, :, at : at + length] for at in starts] for each in (query, key, value)]
        q, k, v = (torch.cat(each) if len(each) > 1 else each[0] for each in parts)
        mask = _window(length, sliding_window, q.device)
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=scaling, enable_gqa=grouped
        )
        for at, one in zip(starts, out.transpose(1, 2), strict=True):
            found[0, at : at + length] = one
    return found, None


def _window(length: int, window: int | None, device: torch.device) -> Tensor | None:
    """The mask of which tokens attend to which; None: all attend to all."""
    if window is None or length <= window:
        return None
    at = torch.arange(length, device=device)
    return (at[:, None] - at).abs() < window


AttentionInterface.register(NAME, attend)
