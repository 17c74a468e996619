"""Norms over the last dimension, each row by itself."""

import torch
import torch.nn.functional as F
from torch import Tensor


class RmsNorm:
    """To a root mean square of 1, in float32; then by the weight (Zhang and Sennrich 2019).

    The dtype of the weight is where rounding comes: with a weight in x's dtype the normed x is
    rounded first, as Llama's reference does; with one in float32 the product is, as Gemma's and
    OLMo's do.
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
    """To a mean of 0 and a deviation of 1; then by the weight, plus the bias."""

    __slots__ = ("bias", "eps", "weight")

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        self.weight, self.bias, self.eps = weight, bias, eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class NoNorm:
    """The norm that is not there."""

    __slots__ = ()

    def __call__(self, x: Tensor) -> Tensor:
        return x


Norm = RmsNorm | LayerNorm | NoNorm
