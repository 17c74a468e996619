"""Predicts, before loading, the bytes that loaded weights take."""

from math import prod
from pathlib import Path

from safetensors import SafetensorError

from headway.executor.precision import Precision
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.config.stored_tensors import stored_tensors
from headway.executor.torch.cpu.build import can_be_built
from headway.executor.torch.loading.tensor_names import EMBED, HEAD, layer_tensors, tensor_shapes

PANEL, FOUR = 64, 4  # outputs and inputs of matrices in 8 bits are padded to these (cpu/native)
HALF = 2  # bytes of a number in bfloat16
FLOATS = {"F32": 4, "F16": 2, "BF16": 2}  # bytes of a stored number, by the files' name of it
OF_OUTPUT = 8  # bytes per output besides its weights: their scale and their sum


def weight_bytes(config: ModelConfig, precision: Precision) -> int:
    """Bytes of all tensors, each counted once. In int8, stacked matrices are counted separately,
    with perhaps too much padding. Under float32, bfloat16 matrices that fit our CPU kernels stay
    bfloat16, if the kernels can be built."""
    shapes, stacks = tensor_shapes(config), _stacks(config)
    if config.answers:
        shapes.pop(HEAD + ".weight", None)  # only a few of its rows are read
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


def stored_bytes(folder: Path, itemsize: int) -> int:
    """Bytes of a folder's weights if their floats are kept in `itemsize` bytes; 0: as stored. What
    is stored in other types, as quantised weights are, counts as stored. A link to a file that is
    gone, as in a cache that was cleared, counts as nothing."""
    total = 0
    for path in filter(Path.is_file, folder.glob("*.safetensors")):
        total += path.stat().st_size
        if itemsize:
            total += _widening(path, itemsize)
    return total


def _widening(path: Path, itemsize: int) -> int:
    """By how many bytes a file's floats grow if they are kept in `itemsize` bytes; 0 for a file
    that cannot be read, and so not loaded."""
    try:
        stored = stored_tensors(path).values()
    except (SafetensorError, OSError):
        return 0
    return sum(prod(each.shape) * (itemsize - FLOATS.get(each.dtype, itemsize)) for each in stored)


def second_head_bytes(config: ModelConfig, precision: Precision, device: str) -> int:
    """Bytes of the second copy that a tied head needs on a CPU: its packed layout. 0 if our kernels
    read that layout, because then the embedding can use it too."""
    if not config.tied or not config.generates or device != "cpu" or precision.quantize:
        return 0
    halves = config.dtype == "bfloat16" or precision.dtype == "bfloat16"
    if halves and can_be_built() and fits(config.vocab, config.hidden):
        return 0
    return config.vocab * config.hidden * precision.itemsize


def _stacks(config: ModelConfig) -> list[list[str]]:
    """The matrices that become int8, grouped by the layer that they are stacked into: all but
    routers and a classifier's head."""
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
    """As in cpu/half.py, which imports torch."""
    return outputs % PANEL == 0 and inputs % 2 == 0


def _int8_bytes(outputs: int, inputs: int) -> int:
    outputs, inputs = -(-outputs // PANEL) * PANEL, -(-inputs // FOUR) * FOUR
    return outputs * (inputs + OF_OUTPUT)
