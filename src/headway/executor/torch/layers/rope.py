"""Rotary position embedding by table look-up. positions.py names the sources of the scalings."""

import math

import torch
from torch import Tensor

from headway.executor.torch.config.positions import (
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    Rope,
    YarnScaling,
)


def frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Each rotated pair of dimensions' angle per position, float32.

    [head_dim / 2], or fewer if only a share of the head is rotated.
    """
    dims = int(head_dim * rope.rotary_share)
    fast = 1.0 / rope.theta ** (torch.arange(0, dims, 2, dtype=torch.float32) / dims)
    match rope.scaling:
        case LinearScaling(factor):
            return fast / factor
        case LongRopeScaling(factors):
            return fast / torch.tensor(factors)
        case Llama3Scaling(factor, low, high, original):
            turns = original * fast / (2 * math.pi)  # full turns inside the original context
            kept = (turns - low) / (high - low)
        case YarnScaling(factor):
            first, last = _yarn_range(rope.scaling, rope.theta, dims)
            kept = 1 - (torch.arange(dims // 2).float() - first) / (last - first)
    kept = kept.clamp(0, 1)  # 1: unchanged; 0: divided by the whole factor
    return (1 - kept) * fast / factor + kept * fast


def _yarn_range(yarn: YarnScaling, theta: float, dims: int) -> tuple[float, float]:
    """The pairs of dimensions between which YaRN's stretching grows: first and last."""
    first, last = (
        dims * math.log(yarn.original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        for turns in (yarn.fast, yarn.slow)
    )
    if yarn.rounded:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    return first, last if last != first else first + 0.001


def rotary_tables(
    rope: Rope, head_dim: int, length: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions 0 to length - 1: two tensors [length, 1, rotated pairs].

    Angles are computed in float32 for every dtype, as in transformers: in bfloat16, distant
    positions would share one angle.
    """
    angles = torch.outer(torch.arange(length).float(), frequencies(rope, head_dim)).unsqueeze(1)
    cos, sin = angles.cos() * rope.attention_factor, angles.sin() * rope.attention_factor
    return cos.to(device, dtype), sin.to(device, dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each head of x [n, heads, head_dim] by its position's angles [n, 1, pairs].

    Dimension i is paired with i + pairs, the layout of Hugging Face checkpoints. Dimensions after
    the pairs are unchanged.
    """
    dims = 2 * cos.shape[-1]
    left, right = (x if dims == x.shape[-1] else x[..., :dims]).chunk(2, dim=-1)
    turned = (left * cos - right * sin, right * cos + left * sin)
    return torch.cat(turned if dims == x.shape[-1] else (*turned, x[..., dims:]), dim=-1)
