"""RecordedSteps: small steps of a CPU are computed in Python once, and then played back.

A decode step of a few rows is a few hundred kernels, and Python needs some twenty microseconds to
find the arguments of each. For the same number of tokens they are the same, but for the memory that
results lie in. So the kernels of a step are recorded, with results in memory that is kept, and the
next such step is one call that makes theirs. What differs from step to step lies at places that
stay: positions, cells, and what attention reads. The idea is that of CUDA graphs.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headway.executor.torch.cpu.library import Kernels
from headway.executor.torch.cpu.tape import OPEN, Tape

MOST = 64  # tokens of a step that is recorded. What Python costs is little beside more
LINE = 64  # bytes of the caches, where each result begins
FREE = 3  # references to memory that nobody uses: the list's, the loop's, and the one that counts

aten = torch.ops.aten
NEW, EMPTY, LIKE = aten.new_empty.default, aten.empty.memory_format, aten.empty_like.default
VIEWS = frozenset(
    {
        *(aten.view.default, aten._unsafe_view.default, aten.slice.Tensor, aten.select.int),
        *(aten.alias.default, aten.detach.default, aten.unsqueeze.default, aten.split.Tensor),
    }
)


class Memory:
    """Memory for results, kept from one recording to the next: two steps never run at once."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint8]] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A part that no tensor refers to any more, or a new one."""
        size = max(LINE, int(np.prod(shape)) * dtype.itemsize)
        for part in self._parts:
            if size <= part.nbytes <= 2 * size and sys.getrefcount(part) == FREE:
                return self._view(part, shape, dtype)
        length = 1 << (size - 1).bit_length()
        more = np.empty(length + LINE, dtype=np.uint8)
        begin = -more.ctypes.data % LINE
        self._parts.append(more[begin : begin + length])
        return self._view(self._parts[-1], shape, dtype)

    @staticmethod
    def _view(part: NDArray[np.uint8], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        numbers = int(np.prod(shape))
        return torch.from_numpy(part)[: numbers * dtype.itemsize].view(dtype).view(shape)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives results memory that is kept, and sees whether torch computes something itself."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memory = memory
        self.alone = True  # our kernels have computed everything

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Importing torch's compiler would take more than a second, and nothing is compiled."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        more = kwargs or {}
        if func in (NEW, EMPTY, LIKE):
            like = None if func is EMPTY else args[0]
            shape = args[0].shape if func is LIKE else args[1 if func is NEW else 0]
            dtype = more.get("dtype") or (torch.float32 if like is None else like.dtype)
            return self._memory.empty(tuple(shape), dtype)
        self.alone = self.alone and func in VIEWS
        return func(*args, **more)


@dataclass(frozen=True, slots=True)
class Recording:
    """One number of tokens."""

    tape: Tape
    x: Tensor  # [N, hidden]: where the step's embeddings go
    found: Tensor  # where its result lies then


class RecordedSteps:
    """By number of tokens, for one model and one thread of Python."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels, self._memory = kernels, Memory()
        self._of: object = None  # the KV memory whose places were recorded
        self._recordings: dict[tuple[int, int], Recording | None] = {}
        self.possible = True  # until torch has computed something itself

    def run(self, x: Tensor, cache: object, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """compute(x): [N, hidden] -> [N, hidden]. A later step overwrites the result.

        The first step of a size is computed, the second one recorded, and the others are played.
        """
        if not self.possible or len(x) > MOST:
            return compute(x)
        if cache is not self._of:
            self._of, self._recordings = cache, {}
        size = len(x), torch.get_num_threads()
        if size not in self._recordings:
            self._recordings[size] = None
            return compute(x)
        recording = self._recordings[size]
        if recording is None:
            return self._record(size, x, compute)
        recording.x.copy_(x)
        recording.tape.play()
        return recording.found

    def _record(
        self, size: tuple[int, int], x: Tensor, compute: Callable[[Tensor], Tensor]
    ) -> Tensor:
        kept = self._memory.empty(tuple(x.shape), x.dtype)
        kept.copy_(x)
        tape, watch = Tape(self._kernels.play), Watch(self._memory)
        OPEN.recorder = tape
        try:
            with watch:
                found = compute(kept)
        finally:
            OPEN.recorder = None
        self.possible = watch.alone
        if watch.alone:
            self._recordings[size] = Recording(tape, kept, found)
        return found
