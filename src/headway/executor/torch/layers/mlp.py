"""A layer's feed-forward part: one MLP, or a mixture of experts."""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.executor.torch.config.model_config import Activation
from headway.executor.torch.layers.linear import AnyLinear

Gating = Callable[[Tensor, Activation], Tensor]  # [n, 2 x intermediate] -> [n, intermediate]


class Mlp:
    """down(act(gate(x)) * up(x)) if gated, else down(act(up(x))).

    gate_up  | intermediate | intermediate |  in one matrix, so x is read once
    """

    __slots__ = ("activation", "down", "gate_up", "gated", "gating")

    def __init__(
        self,
        gate_up: AnyLinear,
        down: AnyLinear,
        gated: bool,
        activation: Activation,
        gating: Gating | None = None,
    ) -> None:
        """gating: a kernel for act(gate) * up; None: use torch's operators."""
        self.gate_up, self.down = gate_up, down
        self.gated, self.activation, self.gating = gated, activation, gating

    def __call__(self, x: Tensor) -> Tensor:
        """[n, hidden] -> [n, hidden], n >= 1."""
        return self.down(self.activate(self.gate_up(x)))

    def activate(self, wide: Tensor) -> Tensor:
        """The input of `down`: [n, outputs of gate_up] -> [n, intermediate]."""
        if not self.gated:
            return self._act(wide)
        if self.gating is not None:
            return self.gating(wide, self.activation)
        gate, up = wide.chunk(2, dim=-1)
        return self._act(gate) * up

    def _act(self, x: Tensor) -> Tensor:
        return F.silu(x) if self.activation == "silu" else F.gelu(x, approximate="tanh")


class Grouped(Protocol):
    """Computes the experts of a mixture together, without waiting for the device."""

    def __call__(self, x: Tensor, shares: Tensor, chosen: Tensor) -> Tensor:
        """Each token's weighted sum over its experts: [n, hidden] -> [n, hidden].

        shares and chosen [n, experts per token]: the weights, and the experts' numbers.
        """
        ...


class Mixture:
    """A weighted sum of a few experts, chosen for each token (Shazeer et al. 2017; Mixtral 2024).

    Tokens are gathered expert by expert. A token's experts are summed in an order that depends
    only on the token, so its answer does not depend on the batch.

    To learn an expert's tokens, the host must wait for the device. `grouped` avoids that wait and
    is used if given. If the host may not wait and there is no such kernel, every expert computes
    all tokens and unwanted results are dropped: count / chosen times the products (4 for Mixtral
    8x7B).
    """

    __slots__ = ("chosen", "experts", "grouped", "renormalized", "router", "waits")

    def __init__(
        self,
        router: AnyLinear,
        experts: tuple[Mlp, ...],
        chosen: int,
        renormalized: bool,
        waits: bool,
        grouped: Grouped | None = None,
    ) -> None:
        """waits: whether the host may wait for the router's choice. grouped: a kernel for all
        of these experts."""
        self.router, self.experts = router, experts
        self.chosen, self.renormalized, self.waits = chosen, renormalized, waits
        self.grouped = grouped

    def __call__(self, x: Tensor) -> Tensor:
        """[n, hidden] -> [n, hidden], n >= 1."""
        weights, chosen = self.router(x).float().softmax(dim=-1).topk(self.chosen, dim=-1)
        if self.renormalized:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)
        if self.grouped is not None:
            return self.grouped(x, weights, chosen)
        if not self.waits:
            return self._by_all(x, weights, chosen)
        found = torch.zeros_like(x)
        for expert in torch.unique(chosen).tolist():
            rows, places = (chosen == expert).nonzero(as_tuple=True)
            share = weights[rows, places].unsqueeze(1)
            found.index_add_(0, rows, self.experts[expert](x[rows]) * share)
        return found

    def _by_all(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Let every expert compute all tokens. weights and chosen [n, chosen]."""
        found = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            its = chosen == i
            share = (weights * its).sum(dim=-1, keepdim=True)
            # share x result is not enough: an expert that was not chosen may give infinities.
            found += torch.where(its.any(dim=-1, keepdim=True), expert(x) * share, 0)
        return found
