"""Dense: the layers that sentence-transformers applies after pooling (its Dense modules)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headway.errors import CheckpointError, UnsupportedModelError, first_line
from headway.executor.torch.config.config_reader import ConfigReader, read_json

FILE = "model.safetensors"
POOLED = "sentence_embedding"  # sentence-transformers' name of a dense layer's input
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
}


@dataclass(frozen=True, slots=True)
class Layer:
    """activation(x W^T + b), in float32."""

    weight: Tensor  # [outputs, inputs]
    bias: Tensor | None  # [outputs]
    activation: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Dense:
    """Layers applied one after the other. Without layers, vectors stay as they are."""

    layers: tuple[Layer, ...] = ()

    def __call__(self, x: Tensor) -> Tensor:
        """[R, hidden] float32 -> [R, width]. Rows are independent."""
        for layer in self.layers:
            x = layer.activation(F.linear(x, layer.weight, layer.bias))
        return x

    def width(self, hidden: int) -> int:
        """The length of a vector after the layers. hidden: its length before them."""
        return len(self.layers[-1].weight) if self.layers else hidden

    @property
    def nbytes(self) -> int:
        return sum(each.weight.nbytes for each in self.layers)


def load_dense(folder: Path, names: Sequence[str], hidden: int, device: torch.device) -> Dense:
    """Load the layers in these folders of a checkpoint. hidden: length of their input vectors.

    Raises CheckpointError or UnsupportedModelError.
    """
    layers = list[Layer]()
    for name in names:
        layers.append(_layer(folder / name, hidden, device))
        hidden = len(layers[-1].weight)
    return Dense(tuple(layers))


def _layer(folder: Path, inputs: int, device: torch.device) -> Layer:
    path = folder / "config.json"
    reader = ConfigReader(read_json(path), str(path))
    named = str(reader.get("activation_function", "torch.nn.modules.activation.Tanh"))
    kind = named.rpartition(".")[2]
    if kind not in ACTIVATIONS:
        raise UnsupportedModelError(f"{path}: the activation {named} of a dense layer")
    if reader.flag("use_residual"):
        raise UnsupportedModelError(f"{path}: a dense layer with a residual connection")
    if (read := reader.get("module_input_name", POOLED)) != POOLED:
        raise UnsupportedModelError(f"{path}: a dense layer of {read}")
    file = folder / FILE
    if not file.is_file():
        raise CheckpointError(f"{file} is missing: a dense layer's weights; pickles are not opened")
    try:
        tensors = load_file(file, device=str(device))
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} cannot be read: {first_line(error)}") from None
    outputs = reader.count("out_features")
    shapes = {"linear.weight": [outputs, inputs]}
    if reader.flag("bias", True):
        shapes["linear.bias"] = [outputs]
    found = {key: list(tensor.shape) for key, tensor in tensors.items()}
    if found != shapes:
        raise CheckpointError(f"{file} holds {found}, where {shapes} is wanted")
    bias = tensors.get("linear.bias")
    floats = None if bias is None else bias.float()
    return Layer(tensors["linear.weight"].float(), floats, ACTIVATIONS[kind])
