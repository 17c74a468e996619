"""stored_tensors: what a safetensors file holds, by its header alone."""

from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open


class StoredTensor(NamedTuple):
    """A tensor as it is stored."""

    dtype: str  # the file's name of it, such as BF16
    shape: tuple[int, ...]


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file, by name. Raises SafetensorError if it is damaged, and OSError."""
    with safe_open(path, framework="np") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  (no dict)
        return {
            name: StoredTensor(part.get_dtype(), tuple(part.get_shape()))
            for name, part in parts.items()
        }
