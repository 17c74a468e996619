"""Attention over gathered keys and values: pure functions of tensors.

Rows of one token and rows of many are handled apart. Both go to the flash kernel of torch's
scaled_dot_product_attention, which on a CPU does not materialise the scores.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.executor.torch.config.scales import Scales
from headway.executor.torch.memory.memory_plan import SCORE_ELEMENTS


def attend_decode(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scales: Scales) -> Tensor:
    """One query per row, each over its own keys.

    q [rows, heads, head_dim]; k and v [rows, longest, kv_heads, head_dim], padded; mask
    [rows, 1, 1, longest], 0 where a row's key is and -inf where padding is. Returns
    [rows, heads x head_dim].

    The query heads that share a KV head stand as rows of one small matrix, so that its keys
    are read once for all of them: up to 2 times as fast as enable_gqa here.

    q     | KV head 0: query heads 0 .. group-1 | KV head 1: group .. 2 group - 1 | ...
    """
    rows, heads, size = q.shape
    kv_heads = k.shape[2]
    grouped = q.view(rows, kv_heads, heads // kv_heads, size)
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    if scales.scores_cap:
        found = _soft_capped(grouped, k, v, mask, scales)
    else:
        found = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=scales.scores)
    return found.reshape(rows, heads * size)


def attend_prefill(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scales: Scales) -> Tensor:
    """Many queries of one row, over the keys up to their own.

    q [n, heads, head_dim]; k and v [keys, kv_heads, head_dim]; mask [n, keys], 0 or -inf, or
    None: query i sees keys 0 to i, and all of them where there are fewer. Returns
    [n, heads x head_dim].

    With many queries the kernel reads a KV head's keys block by block anyway: enable_gqa,
    heads grouped as rows, and keys expanded without a copy were within a tenth of each other.
    """
    n, heads, size = q.shape
    keys, kv_heads, _ = k.shape
    q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    if not scales.scores_cap:
        found = F.scaled_dot_product_attention(
            q.unsqueeze(0),
            k.unsqueeze(0),
            v.unsqueeze(0),
            attn_mask=mask,
            is_causal=mask is None,
            scale=scales.scores,
            enable_gqa=heads != kv_heads,
        )[0]
        return found.transpose(0, 1).reshape(n, heads * size)
    if mask is None:
        mask = torch.full((n, keys), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
    grouped, step = q.reshape(kv_heads, -1, n, size), max(1, SCORE_ELEMENTS // (heads * keys))
    pieces = [
        _soft_capped(
            grouped[:, :, i : i + step], k[:, None], v[:, None], mask[i : i + step], scales
        )
        for i in range(0, n, step)
    ]
    return torch.cat(pieces, dim=2).flatten(0, 1).transpose(0, 1).reshape(n, heads * size)


def _soft_capped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scales: Scales) -> Tensor:
    """With soft-capped scores (Gemma 2), which the kernel has not: they are all written out.

    q [.., n, head_dim]; k and v [.., keys, head_dim]; mask that fits [.., n, keys].
    """
    scores = q @ k.transpose(-1, -2) * (scales.scores / scales.scores_cap)
    scores = scores.tanh() * scales.scores_cap + mask
    return scores.softmax(dim=-1, dtype=torch.float32).to(q.dtype) @ v
