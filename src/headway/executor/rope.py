"""Rotary position embedding by table look-up.

RoPE: Su et al. 2021. The stretching by wavelength is Llama 3.1's.
"""

import math

import torch
from torch import Tensor

from headway.executor.config import Rope


def frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Angle per position of each pair of dimensions: [head_dim / 2], float32.

    Llama 3's scaling divides slow ones (long wavelengths) by the factor, leaves fast ones as
    they are, and goes from the one to the other linearly in between.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    fast = 1.0 / rope.theta**exponents
    if rope.factor == 1.0:
        return fast
    turns = rope.original * fast / (2 * math.pi)  # full turns inside the original context
    share = ((turns - rope.low) / (rope.high - rope.low)).clamp(0, 1)
    return (1 - share) * fast / rope.factor + share * fast


def tables(
    rope: Rope, head_dim: int, length: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions 0 to length - 1: two of [length, 1, head_dim / 2].

    Angles are computed in float32 whatever the dtype, as transformers does: in bfloat16 two
    far positions would share one angle.
    """
    angles = torch.outer(torch.arange(length).float(), frequencies(rope, head_dim)).unsqueeze(1)
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each head of x [n, heads, head_dim] by its position's angles [n, 1, head_dim / 2].

    Dimension i is paired with i + head_dim / 2, the layout of Hugging Face checkpoints.
    """
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
