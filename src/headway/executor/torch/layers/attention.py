"""Attention over gathered keys and values: pure functions of tensors.

Decode rows (one token) and prefill rows (several) are handled separately. Both use torch's
scaled_dot_product_attention, whose flash kernel on a CPU does not materialise the scores.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.executor.torch.config.scales import Scales
from headway.executor.torch.memory.memory_plan import SCORE_ELEMENTS


def attend_decode(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scales: Scales) -> Tensor:
    """Attend with one query per row, each over its own row's keys.

    q [rows, heads, head_dim]; k and v [rows, longest, kv_heads, head_dim], padded; mask
    [rows, 1, 1, longest], 0 at keys that the row sees, -inf elsewhere. Returns
    [rows, heads x head_dim].

    The query heads that share a KV head form the rows of one small matrix, so its keys are read
    once for all of them: up to 2 times as fast as enable_gqa here.

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
    """Attend with many queries of one row, each over the keys up to its own.

    q [n, heads, head_dim]; k and v [keys, kv_heads, head_dim]; mask [n, keys], 0 or -inf. With
    mask None, query i sees keys 0 to i, or all keys if there are fewer. Returns
    [n, heads x head_dim].

    With many queries the kernel reads a KV head's keys block by block anyway: enable_gqa, heads
    grouped as rows, and keys expanded without a copy took within a tenth of the same time.
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
    """Attend with soft-capped scores (Gemma 2). The kernel lacks the cap, so all scores are
    materialised.

    q [.., n, head_dim]; k and v [.., keys, head_dim]; mask broadcastable to [.., n, keys].
    """
    scores = q @ k.transpose(-1, -2) * (scales.scores / scales.scores_cap)
    scores = scores.tanh() * scales.scores_cap + mask
    return scores.softmax(dim=-1, dtype=torch.float32).to(q.dtype) @ v
