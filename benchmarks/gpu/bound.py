"""The least time that a step can take on a device, by rates that are measured on it."""

from dataclasses import dataclass
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from headway.executor.torch.config.model_config import ModelConfig

COPIED = {"cpu": 64 << 20}  # bytes
COPIED_ELSEWHERE = 2 << 30
SIDE, SIDE_ELSEWHERE = {"cpu": 512}, 8_192
TRIALS, TIMES = 5, 10


@dataclass(frozen=True, slots=True)
class Bound:
    """Measured rates of a device."""

    copy: float  # bytes per second, those read and those written
    product: float  # FLOP per second of a large product of random numbers

    @classmethod
    def measured(cls, dtype: torch.dtype, device: torch.device) -> "Bound":
        """The best of some trials each."""
        count = COPIED.get(device.type, COPIED_ELSEWHERE) // dtype.itemsize
        source = torch.zeros(count, dtype=dtype, device=device)
        copied = seconds(partial(torch.empty_like(source).copy_, source), device)
        side = SIDE.get(device.type, SIDE_ELSEWHERE)
        one, other = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        multiplied = seconds(partial(torch.matmul, one, other), device)
        return cls(2 * source.nbytes / copied, 2 * side**3 / multiplied)

    def step(self, config: ModelConfig, itemsize: int, spans: list[tuple[int, int]]) -> float:
        """Seconds that a step of these (past, tokens) needs at least: the sum over its products and
        attentions of the larger of bytes / copy and FLOPs / product.

        Norms, rotations and activations count nothing, as if all of them were fused.
        """
        tokens = sum(count for _, count in spans)
        layer = sum(self._product(tokens, *each, itemsize) for each in linears(config))
        layer += self._attention(config, itemsize, spans)
        head = self._product(len(spans), config.hidden, config.vocab, itemsize)
        return config.layers * layer + head

    def _product(self, rows: int, inputs: int, outputs: int, itemsize: int) -> float:
        moved = itemsize * (inputs * outputs + rows * (inputs + outputs))
        return max(moved / self.copy, 2 * rows * inputs * outputs / self.product)

    def _attention(self, config: ModelConfig, itemsize: int, spans: list[tuple[int, int]]) -> float:
        keys = sum(past + count for past, count in spans)
        moved = itemsize * 2 * keys * config.kv_heads * config.head_dim
        return max(moved / self.copy, attention_flops(config, spans) / self.product)


def linears(config: ModelConfig) -> list[tuple[int, int]]:
    """Inputs and outputs of a layer's products."""
    heads, dims = config.heads, config.head_dim
    return [
        (config.hidden, (heads + 2 * config.kv_heads) * dims),
        (heads * dims, config.hidden),
        (config.hidden, 2 * config.intermediate),
        (config.intermediate, config.hidden),
    ]


def attention_flops(config: ModelConfig, spans: list[tuple[int, int]]) -> int:
    """Of one layer: scores and their sums, over the keys that each query sees."""
    pairs = sum(count * past + count * (count + 1) // 2 for past, count in spans)
    return 4 * pairs * config.heads * config.head_dim


def step_flops(config: ModelConfig, spans: list[tuple[int, int]]) -> int:
    """Of a whole step that samples once for each span."""
    tokens = sum(count for _, count in spans)
    products = sum(2 * tokens * inputs * outputs for inputs, outputs in linears(config))
    head = 2 * len(spans) * config.hidden * config.vocab
    return config.layers * (products + attention_flops(config, spans)) + head


def seconds(work: "partial[Tensor]", device: torch.device) -> float:
    """The best mean of TIMES runs."""
    work()
    best = float("inf")
    for _ in range(TRIALS):
        wait(device)
        began = perf_counter()
        for _ in range(TIMES):
            work()
        wait(device)
        best = min(best, (perf_counter() - began) / TIMES)
    return best


def wait(device: torch.device) -> None:
    """Until the device has nothing to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
