"""Bytes that weights take once they are loaded, before anything is."""

from math import prod

from headway.executor.precision import Precision
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.cpu.build import can_be_built
from headway.executor.torch.loading.tensor_names import EMBED, HEAD, layer_tensors, tensor_shapes

PANEL, FOUR = 64, 4  # outputs and inputs of matrices in 8 bits are padded to these (cpu/native)
HALF = 2  # bytes of a number in bfloat16
OF_OUTPUT = 8  # bytes beside an output's weights: their scale and their sum


def weight_bytes(config: ModelConfig, precision: Precision) -> int:
    """Of all tensors, each once. In int8, stacked matrices are counted one by one: it may be some
    padding more than the truth. On a CPU in float32, matrices stored in bfloat16 stay in it."""
    shapes, stacks = tensor_shapes(config), _stacks(config)
    if config.answers:
        shapes.pop(HEAD + ".weight", None)  # of which a few rows are read
    halves = set[str]()
    if config.dtype == "bfloat16" and precision.dtype == "float32" and can_be_built():
        for stack in stacks:
            outputs = sum(shapes[name][0] for name in stack)
            halves |= set(stack) if fits(outputs, shapes[stack[0]][1]) else set()
    matrices = {name for stack in stacks for name in stack}

    def nbytes(name: str, shape: tuple[int, ...]) -> int:
        if precision.quantize and name in matrices:
            return _int8_bytes(*shape)
        return prod(shape) * (HALF if name in halves else precision.itemsize)

    return sum(nbytes(name, shape) for name, shape in shapes.items())


def second_head_bytes(config: ModelConfig, precision: Precision, device: str) -> int:
    """Of a tied head that is packed: on a CPU the output layer needs a layout of its own. Where our
    kernels know it, the embedding reads the same one."""
    if not config.tied or not config.generates or device != "cpu" or precision.quantize:
        return 0
    halves = config.dtype == "bfloat16" or precision.dtype == "bfloat16"
    if halves and can_be_built() and fits(config.vocab, config.hidden):
        return 0
    return config.vocab * config.hidden * precision.itemsize


def _stacks(config: ModelConfig) -> list[list[str]]:
    """All matrices but routers, those together that become one. They are what becomes int8."""
    ends = [EMBED + ".weight", HEAD + ".weight"]
    found = [[name] for name in (ends[:1] if config.tied or config.answers else ends)]
    for i in range(config.layers):
        layer = layer_tensors(config, i)
        stacks = [layer.qkv, (layer.out,)]
        for mlp in layer.mlps:
            stacks += [mlp.up, (mlp.down,)]
        found += [[each.name + ".weight" for each in stack] for stack in stacks]
    return found


def fits(outputs: int, inputs: int) -> bool:
    """As cpu/half.py, which needs torch."""
    return outputs % PANEL == 0 and inputs % 2 == 0


def _int8_bytes(outputs: int, inputs: int) -> int:
    outputs, inputs = -(-outputs // PANEL) * PANEL, -(-inputs // FOUR) * FOUR
    return outputs * (inputs + OF_OUTPUT)
