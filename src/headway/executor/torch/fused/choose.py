"""Chooses the fused kernels for a device: Triton on a CUDA device, C++ on a CPU."""

from importlib.util import find_spec

import torch

from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.cpu.library import kernels
from headway.executor.torch.cpu.recorded_steps import RecordedSteps
from headway.executor.torch.fused.cpu_operators import CpuGate, CpuOperators
from headway.executor.torch.layers.linear import AnyLinear
from headway.executor.torch.layers.mlp import Gating, Grouped, Mixture, Mlp
from headway.executor.torch.layers.operators import Operators, RotaryTable, TorchOperators
from headway.executor.torch.layers.product_choice import Kind
from headway.executor.torch.layers.quantized import QuantizedLinear


def has_kernels(device: torch.device) -> bool:
    """Whether our Triton kernels run on this device."""
    return device.type == "cuda" and find_spec("triton") is not None


def grouped_experts(experts: tuple[Mlp, ...], device: torch.device) -> Grouped | None:
    """A kernel that computes all experts together; None if the device has none."""
    if not has_kernels(device):
        return None
    from headway.executor.torch.fused.grouped_experts import GroupedExperts

    return GroupedExperts(experts)


def gating_of(device: torch.device) -> Gating | None:
    """A kernel for act(gate) x up; None if the device has none."""
    if has_kernels(device):
        from headway.executor.torch.fused.fused_operators import gate

        return gate
    found = kernels() if device.type == "cpu" else None
    return CpuGate(found) if found else None


def operators_of(
    config: ModelConfig, device: torch.device, rotary: list[RotaryTable], table_of_layer: list[int]
) -> Operators:
    """The operators between matrix products: fused kernels, or else torch's operators."""
    if has_kernels(device):
        from headway.executor.torch.fused.fused_operators import FusedOperators

        return FusedOperators(config, rotary, table_of_layer)
    if device.type == "cpu" and (found := kernels()):
        return CpuOperators(config, rotary, table_of_layer, found)
    return TorchOperators(config, rotary, table_of_layer)


def recorded_steps(
    operators: Operators, qkv: AnyLinear, mlp: Mlp | Mixture, hidden: int
) -> RecordedSteps | None:
    """The recorder of CPU steps. None if torch's operators or a GPU compute them, or if there are
    experts. qkv and mlp: of one layer; all layers have the same kinds and shapes."""
    if not isinstance(operators, CpuOperators) or not isinstance(mlp, Mlp):
        return None
    kinds = () if isinstance(qkv, QuantizedLinear) else qkv.kinds

    def class_of(tokens: int) -> Kind | None:
        """The kind of product for this many rows."""
        return kinds[min(tokens, len(kinds) - 1)] if kinds else None

    # In float32: twice the results of a layer's widest products, and eight residual streams.
    token = (2 * (qkv.outputs + mlp.gate_up.outputs) + 8 * hidden) * 4
    return RecordedSteps(operators.kernels, class_of, token)
