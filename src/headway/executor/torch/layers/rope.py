"""Rotary position embedding by table look-up; positions.py names the scalings' sources."""

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
    """Angle per position of each pair of dimensions that turn, float32.

    [head_dim / 2], or fewer where only a share of the head turns.
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
    kept = kept.clamp(0, 1)  # 1: left alone, 0: divided by the whole factor
    return (1 - kept) * fast / factor + kept * fast


def _yarn_range(yarn: YarnScaling, theta: float, dims: int) -> tuple[float, float]:
    """YaRN's pairs of dimensions from which and up to which the stretching grows."""
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
    """Cosines and sines of positions 0 to length - 1: two of [length, 1, pairs that turn].

    Angles are computed in float32 whatever the dtype, as transformers does: in bfloat16 two
    far positions would share one angle.
    """
    angles = torch.outer(torch.arange(length).float(), frequencies(rope, head_dim)).unsqueeze(1)
    cos, sin = angles.cos() * rope.attention_factor, angles.sin() * rope.attention_factor
    return cos.to(device, dtype), sin.to(device, dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each head of x [n, heads, head_dim] by its position's angles [n, 1, pairs].

    Dimension i is paired with i + pairs, the layout of Hugging Face checkpoints; what lies
    behind the pairs stays as it is.
    """
    dims = 2 * cos.shape[-1]
    left, right = (x if dims == x.shape[-1] else x[..., :dims]).chunk(2, dim=-1)
    turned = (left * cos - right * sin, right * cos + left * sin)
    return torch.cat(turned if dims == x.shape[-1] else (*turned, x[..., dims:]), dim=-1)
