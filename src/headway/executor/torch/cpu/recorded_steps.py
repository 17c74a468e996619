"""RecordedSteps: records the kernel calls of a CPU step and plays them back for later steps.

A decode step of a few rows calls a few hundred kernels, and Python takes some twenty microseconds
to find the arguments of each. The arguments differ between steps only in the number of tokens and
in the memory of the results. So a step's kernel calls are recorded, with results in memory that is
kept and has room for many tokens. A second recording with another number of tokens shows which
arguments are that number. Every later step is one call that makes all kernel calls again. The other
inputs of a step (positions, cells, what attention reads) keep their addresses. The idea comes from
CUDA graphs.
"""

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headway.executor.torch.cpu.library import Kernels
from headway.executor.torch.cpu.tape import OPEN, WORDS, Ints, Play, Tape

MOST = 512  # the most tokens of a recorded step. In larger ones, Python's time hardly matters
ROOM = 64 << 20  # bytes for the results of a step, about; a wide model so has fewer tokens
LINE = 64  # bytes of a cache line, to which each result is aligned
TRIES = 8  # recordings that may disagree before recording is given up

Class = Hashable  # steps of one class call the same kernels

aten = torch.ops.aten
NEW, EMPTY, LIKE = aten.new_empty.default, aten.empty.memory_format, aten.empty_like.default
VIEWS = frozenset(
    {
        *(aten.view.default, aten._unsafe_view.default, aten.slice.Tensor, aten.select.int),
        *(aten.alias.default, aten.detach.default, aten.unsqueeze.default, aten.split.Tensor),
    }
)


def references(parts: list[NDArray[np.uint8]]) -> list[int]:
    """The reference count of each part."""
    return [sys.getrefcount(part) for part in parts]


FREE = references([np.empty(1, dtype=np.uint8)])[0]  # the count of a part that only a list holds


class Memory:
    """Memory for results, reused by all recordings: two steps never run at once."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint8]] = []

    def __len__(self) -> int:
        """The number of parts."""
        return len(self._parts)

    def cut(self, count: int) -> None:
        """Keep the first `count` parts, and drop the others once no tensor uses them."""
        del self._parts[count:]

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, tokens: int, most: int) -> Tensor:
        """A tensor in a part that no other tensor uses, or in a new part. Its shape is for
        `tokens` tokens; the part has room for `most`."""
        size = max(LINE, -(-int(np.prod(shape)) * dtype.itemsize // tokens) * most)
        for at, count in enumerate(references(self._parts)):
            if count == FREE and size <= self._parts[at].nbytes <= 2 * size:
                return view_of(self._parts[at], shape, dtype)
        length = 1 << (size - 1).bit_length()
        more = np.empty(length + LINE, dtype=np.uint8)
        begin = -more.ctypes.data % LINE
        self._parts.append(more[begin : begin + length])
        return view_of(self._parts[-1], shape, dtype)

    def at(self, address: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """A tensor at the start of the part with this address; None if there is no such part."""
        for part in self._parts:
            if part.ctypes.data == address:
                return view_of(part, shape, dtype)
        return None


def view_of(part: NDArray[np.uint8], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor at the start of a part."""
    numbers = int(np.prod(shape))
    return torch.from_numpy(part)[: numbers * dtype.itemsize].view(dtype).view(shape)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Allocates results in Memory, and notices if torch itself computes something."""

    def __init__(self, memory: Memory, tokens: int, most: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memory, self._tokens, self._most = memory, tokens, most
        self.alone = True  # whether our kernels have computed everything

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: importing torch's compiler takes over a second, and nothing is compiled here."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        more = kwargs or {}
        if func in (NEW, EMPTY, LIKE):
            like = None if func is EMPTY else args[0]
            shape = args[0].shape if func is LIKE else args[1 if func is NEW else 0]
            dtype = more.get("dtype") or (torch.get_default_dtype() if like is None else like.dtype)
            return self._memory.empty(tuple(shape), dtype, self._tokens, self._most)
        self.alone = self.alone and func in VIEWS
        return func(*args, **more)


@dataclass(slots=True)
class Recording:
    """A recorded step of one class. It plays `tokens` tokens; with `counts` known, any number."""

    words: Ints  # [calls, WORDS] (tape.py)
    tokens: int
    x: int  # address of the step's embeddings, [N, hidden]
    found: int  # address of its result, [N, hidden]
    counts: Ints | None = None  # flat indices into words that hold the number of tokens
    views: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # x and found, by tokens

    def fits(self, tokens: int) -> bool:
        return self.counts is not None or tokens == self.tokens

    def play(self, play: Play, memory: Memory, x: Tensor) -> Tensor:
        """Compute the step with these embeddings. Their number of tokens must fit."""
        tokens = len(x)
        if tokens not in self.views:
            shape = tuple(x.shape)
            kept, found = (memory.at(each, shape, x.dtype) for each in (self.x, self.found))
            assert kept is not None and found is not None
            self.views[tokens] = kept, found
        kept, found = self.views[tokens]
        if tokens != self.tokens:
            assert self.counts is not None
            np.put(self.words, self.counts, tokens)
            self.tokens = tokens
        kept.copy_(x)
        play(self.words.ctypes.data, len(self.words), WORDS)
        return found

    def learn(self, other: "Recording") -> bool:
        """Find `counts` by comparison with a recording of another number of tokens. Returns False
        if the two recordings differ in anything else."""
        same = self.words.shape == other.words.shape and self.tokens != other.tokens
        if not same or (self.x, self.found) != (other.x, other.found):
            return False
        differ = np.flatnonzero(self.words != other.words)
        here, there = self.words.flat[differ], other.words.flat[differ]
        if not ((here == self.tokens) & (there == other.tokens)).all():
            return False
        self.counts = differ
        return True


class RecordedSteps:
    """The recordings of one model, by class of steps. For use by one Python thread."""

    def __init__(self, kernels: Kernels, class_of: Callable[[int], Class], token: int) -> None:
        """class_of: number of tokens -> whatever else decides which kernels a step calls. token:
        bytes of results per token, about."""
        self._kernels, self._memory, self._class_of = kernels, Memory(), class_of
        self.most = max(1, min(MOST, ROOM // token))
        self._of: object = None  # the KV cache whose addresses were recorded
        self._recordings: dict[Class, Recording | None] = {}
        self._by_torch = set[Class]()  # classes in whose steps torch computes something itself
        self._tries = TRIES
        self.possible = True  # until too many recordings have disagreed

    def run(self, x: Tensor, cache: object, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Return compute(x), played back if possible: [N, hidden] -> [N, hidden]. A later step
        overwrites the result.

        The first step of a class is computed plainly, the second is recorded, and so is the next
        with another number of tokens. All others are played back.
        """
        tokens = len(x)
        if not self.possible or tokens > self.most:
            return compute(x)
        if cache is not self._of:
            self._of, self._recordings = cache, {}
        kind = self._class_of(tokens), torch.get_num_threads()
        if kind in self._by_torch:
            return compute(x)
        if kind not in self._recordings:
            self._recordings[kind] = None
            return compute(x)
        recording = self._recordings[kind]
        if recording is not None and recording.fits(tokens):
            return recording.play(self._kernels.play, self._memory, x)
        return self._record(kind, x, compute)

    def _record(self, kind: Class, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        before, parts = self._recordings[kind], len(self._memory)
        if before is not None:
            before.views.clear()  # frees its memory, so this recording gets the same addresses
        tokens = len(x)
        kept = self._memory.empty(tuple(x.shape), x.dtype, tokens, self.most)
        kept.copy_(x)
        tape, watch = Tape(), Watch(self._memory, tokens, self.most)
        OPEN.recorder = tape
        try:
            with watch:
                found = compute(kept)
        finally:
            OPEN.recorder = None
        if not watch.alone or self._memory.at(found.data_ptr(), (1,), torch.uint8) is None:
            self._by_torch.add(kind)
            del self._recordings[kind]
            self._memory.cut(parts)  # nothing is kept for it
            return found
        self.possible = self._tries > 0
        if not self.possible:
            self._recordings, self._memory = {}, Memory()
            return found
        now = Recording(tape.words(), tokens, kept.data_ptr(), found.data_ptr())
        now.views[tokens] = kept, found  # while these exist, their memory is not reused
        if before is not None and not now.learn(before):
            self._tries -= 1
        self._recordings[kind] = now
        return found
