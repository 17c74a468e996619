"""RecordedSteps: steps of a CPU are computed in Python twice, and then played back.

A decode step of a few rows is a few hundred kernels, and Python needs some twenty microseconds to
find the arguments of each. They are the same for all steps, but for the number of tokens and for
the memory that results lie in. So the kernels of a step are recorded, with results in memory that
is kept and has room for many tokens. A second recording, of another number of tokens, shows where
that number stands among the arguments. Later steps are one call that makes all of theirs. What else
differs from step to step lies at places that stay: positions, cells, and what attention reads. The
idea is that of CUDA graphs.
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

MOST = 512  # tokens of a step that is recorded. What Python costs is little beside more
ROOM = 64 << 20  # bytes that the results of a step may take, about: fewer tokens of a wide model
LINE = 64  # bytes of the caches, where each result begins
TRIES = 8  # recordings that may disagree before it is given up

Class = Hashable  # of steps that call the same kernels

aten = torch.ops.aten
NEW, EMPTY, LIKE = aten.new_empty.default, aten.empty.memory_format, aten.empty_like.default
VIEWS = frozenset(
    {
        *(aten.view.default, aten._unsafe_view.default, aten.slice.Tensor, aten.select.int),
        *(aten.alias.default, aten.detach.default, aten.unsqueeze.default, aten.split.Tensor),
    }
)


def references(parts: list[NDArray[np.uint8]]) -> list[int]:
    """How many references to each part there are."""
    return [sys.getrefcount(part) for part in parts]


FREE = references([np.empty(1, dtype=np.uint8)])[0]  # to a part that only a list refers to


class Memory:
    """Memory for results, kept from one recording to the next: two steps never run at once."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint8]] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, tokens: int, most: int) -> Tensor:
        """A part that no tensor refers to any more, or a new one. It is for results of `tokens`
        tokens, and has room for `most`."""
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
        """The beginning of the part that begins there, as a tensor."""
        for part in self._parts:
            if part.ctypes.data == address:
                return view_of(part, shape, dtype)
        return None


def view_of(part: NDArray[np.uint8], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The beginning of a part as a tensor."""
    numbers = int(np.prod(shape))
    return torch.from_numpy(part)[: numbers * dtype.itemsize].view(dtype).view(shape)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives results memory that is kept, and sees whether torch computes something itself."""

    def __init__(self, memory: Memory, tokens: int, most: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memory, self._tokens, self._most = memory, tokens, most
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
            dtype = more.get("dtype") or (torch.get_default_dtype() if like is None else like.dtype)
            return self._memory.empty(tuple(shape), dtype, self._tokens, self._most)
        self.alone = self.alone and func in VIEWS
        return func(*args, **more)


@dataclass(slots=True)
class Recording:
    """Steps of one class: of `tokens` tokens, or once it is known where those stand, of any."""

    words: Ints  # [calls, WORDS] (tape.py)
    tokens: int
    x: int  # the address where the step's embeddings go, [N, hidden]
    found: int  # and where its result lies then, [N, hidden]
    counts: Ints | None = None  # where the number of tokens stands, in words as one line
    views: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # x and found, by tokens

    def fits(self, tokens: int) -> bool:
        return self.counts is not None or tokens == self.tokens

    def play(self, play: Play, memory: Memory, x: Tensor) -> Tensor:
        """The step of these embeddings, of a number of tokens that fits."""
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
        """Find where the number of tokens stands, from a recording of another number. False: the
        two differ in more than that."""
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
    """By class of steps, for one model and one thread of Python."""

    def __init__(self, kernels: Kernels, class_of: Callable[[int], Class], token: int) -> None:
        """class_of: number of tokens -> what else decides which kernels a step calls. token: bytes
        of the results for a token, about."""
        self._kernels, self._memory, self._class_of = kernels, Memory(), class_of
        self.most = max(1, min(MOST, ROOM // token))
        self._of: object = None  # the KV memory whose places were recorded
        self._recordings: dict[Class, Recording | None] = {}
        self._tries = TRIES
        self.possible = True  # until torch has computed something itself

    def run(self, x: Tensor, cache: object, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """compute(x): [N, hidden] -> [N, hidden]. A later step overwrites the result.

        The first step of a class is computed, the second one recorded, and so is the next one of
        another size. The others are played.
        """
        tokens = len(x)
        if not self.possible or tokens > self.most:
            return compute(x)
        if cache is not self._of:
            self._of, self._recordings = cache, {}
        kind = self._class_of(tokens), torch.get_num_threads()
        if kind not in self._recordings:
            self._recordings[kind] = None
            return compute(x)
        recording = self._recordings[kind]
        if recording is not None and recording.fits(tokens):
            return recording.play(self._kernels.play, self._memory, x)
        return self._record(kind, x, compute)

    def _record(self, kind: Class, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        before = self._recordings[kind]
        if before is not None:
            before.views.clear()  # nothing refers to its memory, so it is given out as it was
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
        ours = self._memory.at(found.data_ptr(), (1,), torch.uint8) is not None
        self.possible = watch.alone and ours and self._tries > 0
        if not self.possible:
            self._recordings, self._memory = {}, Memory()
            return found
        now = Recording(tape.words(), tokens, kept.data_ptr(), found.data_ptr())
        now.views[tokens] = kept, found  # for as long, their memory is not given out
        if before is not None and not now.learn(before):
            self._tries -= 1
        self._recordings[kind] = now
        return found
