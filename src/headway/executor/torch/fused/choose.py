"""What a device gets of the fused kernels: all on a CUDA device where Triton is installed."""

from importlib.util import find_spec

import torch

from headway.executor.torch.layers.mlp import Grouped, Mlp


def has_kernels(device: torch.device) -> bool:
    """Whether our Triton kernels run there."""
    return device.type == "cuda" and find_spec("triton") is not None


def grouped_experts(experts: tuple[Mlp, ...], device: torch.device) -> Grouped | None:
    """The experts as one, or None: there is no kernel for it."""
    if not has_kernels(device):
        return None
    from headway.executor.torch.fused.grouped_experts import GroupedExperts

    return GroupedExperts(experts)
