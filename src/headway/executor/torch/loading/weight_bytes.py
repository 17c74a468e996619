"""Bytes that weights take once they are loaded, before anything is."""

from math import prod

from headway.executor.precision import Precision
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.loading.tensor_names import EMBED, HEAD, layer_tensors, tensor_shapes

PANEL, FOUR = 64, 4  # outputs and inputs of matrices in 8 bits are padded to these (cpu/native)
OF_OUTPUT = 8  # bytes beside an output's weights: their scale and their sum


def weight_bytes(config: ModelConfig, precision: Precision) -> int:
    """Of all tensors, each once. In int8, stacked matrices are counted one by one: it may be some
    padding more than the truth."""
    shapes = tensor_shapes(config)
    matrices = _quantized(config) if precision.quantize else set()
    return sum(
        _int8_bytes(*shape) if name in matrices else prod(shape) * precision.itemsize
        for name, shape in shapes.items()
    )


def second_head_bytes(config: ModelConfig, precision: Precision, device: str) -> int:
    """Of a tied head that is packed: on a CPU the output layer needs a layout of its own, and the
    embedding keeps the plain one. In int8 both read the same."""
    if not config.tied or device != "cpu" or precision.quantize:
        return 0
    return config.vocab * config.hidden * precision.itemsize


def _quantized(config: ModelConfig) -> set[str]:
    """The tensors that become int8: all matrices but routers."""
    found = {EMBED + ".weight", HEAD + ".weight"}
    for i in range(config.layers):
        layer = layer_tensors(config, i)
        found |= {each.name + ".weight" for each in (*layer.qkv, layer.out)}
        for mlp in layer.mlps:
            found |= {each.name + ".weight" for each in (*mlp.up, mlp.down)}
    return found


def _int8_bytes(outputs: int, inputs: int) -> int:
    outputs, inputs = -(-outputs // PANEL) * PANEL, -(-inputs // FOUR) * FOUR
    return outputs * (inputs + OF_OUTPUT)
