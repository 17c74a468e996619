"""Norms over the last dimension, each row independent of the others."""

import torch
import torch.nn.functional as F
from torch import Tensor


class RmsNorm:
    """Scale x to a root mean square of 1 in float32, then by the weight (Zhang, Sennrich 2019).

    The weight's dtype decides what is rounded. With a weight in x's dtype, the normed x is rounded
    before the product, as in Llama's reference. With a float32 weight, the product is rounded, as
    in Gemma's and OLMo's.
    """

    __slots__ = ("eps", "weight")

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight, self.eps = weight, eps

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        normed = self.weight * wide.to(self.weight.dtype)
        return normed if normed.dtype is x.dtype else normed.to(x.dtype)


class LayerNorm:
    """Shift and scale x to mean 0 and standard deviation 1; then multiply by the weight and add
    the bias."""

    __slots__ = ("bias", "eps", "weight")

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        self.weight, self.bias, self.eps = weight, bias, eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class NoNorm:
    """No norm: returns x unchanged."""

    __slots__ = ()

    def __call__(self, x: Tensor) -> Tensor:
        return x


Norm = RmsNorm | LayerNorm | NoNorm
