"""Transfers between host and device that do not wait: send to the device, Arrival from it.

On a CPU nothing needs to be copied: tensors and arrays share memory.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
ALIGNMENT = 16  # bytes, of each array's beginning


def send(device: torch.device, *arrays: Array) -> list[Tensor]:
    """Send arrays to a device and return their tensors there.

    A CUDA device gets all arrays in one copy from page-locked memory, which the caching allocator
    keeps until the copy is done. So the host does not wait.
    """
    if device.type != "cpu":
        return send_together(device, arrays)
    return [torch.from_numpy(np.ascontiguousarray(each)) for each in arrays]


def send_together(device: torch.device, arrays: Sequence[Array]) -> list[Tensor]:
    """As send, but in one copy on every device."""
    ends = [0, *accumulate(-(-each.nbytes // ALIGNMENT) * ALIGNMENT for each in arrays)]
    locked = torch.empty(ends[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    whole, found = locked.numpy(), list[Tensor]()
    for begin, each in zip(ends, arrays, strict=False):  # without the last end
        whole[begin : begin + each.nbytes] = np.frombuffer(each.tobytes(), dtype=np.uint8)
    there = locked.to(device, non_blocking=True)
    for begin, each in zip(ends, arrays, strict=False):
        kind = torch.from_numpy(np.empty(0, each.dtype)).dtype
        found.append(there[begin : begin + each.nbytes].view(kind).view(each.shape))
    return found


def send_one(device: torch.device, array: Array) -> Tensor:
    """As send, for one array."""
    return send(device, array)[0]


def copy_stream(device: torch.device) -> "torch.cuda.Stream | None":
    """A stream for copies to the host; None if the device is not CUDA."""
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class Arrival:
    """Tensors on their way to the host. The copies overlap with later computation."""

    def __init__(self, tensors: list[Tensor], stream: "torch.cuda.Stream | None" = None) -> None:
        """Start the copies on this stream; None: the tensors are already on the host."""
        self._tensors, self._event = tensors, None
        if stream is None:
            return
        stream.wait_stream(torch.cuda.current_stream(stream.device))
        with torch.cuda.stream(stream):
            self._tensors = [
                torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in tensors
            ]
            for here, there in zip(self._tensors, tensors, strict=True):
                here.copy_(there, non_blocking=True)
                there.record_stream(stream)  # its memory is not reused before the copy is done
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record(stream)

    def wait(self) -> list[Tensor]:
        """Wait for the copies and return the tensors on the host."""
        if self._event is not None:
            self._event.synchronize()
        return self._tensors
