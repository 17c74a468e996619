"""Tape: kernel calls recorded with their arguments, so that one call can repeat them all."""

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Play = Callable[[int, int, int], None]  # the library's: address of the calls, their number, WORDS

WORDS = 20  # per call: the kernel's address and up to 19 arguments


class Recorder(Protocol):
    """Receives each kernel call."""

    def add(self, kernel: int, words: Sequence[int]) -> None:
        """Record a call. kernel: the address of its NAME_again (native/words.h). words: its
        arguments."""
        ...


class _Open(threading.local):
    """The current recorder of each thread, if it has one."""

    recorder: Recorder | None = None


OPEN = _Open()


class Kernel:
    """A function of the library, whose calls can be recorded."""

    __slots__ = ("_again", "_call", "_kinds")

    def __init__(
        self, library: ctypes.CDLL, name: str, arguments: Sequence[Any], result: Any = None
    ) -> None:
        self._call: Callable[..., int] = library[name]
        self._call.argtypes, self._call.restype = arguments, result
        again = ctypes.cast(library[f"{name}_again"], ctypes.c_void_p).value
        assert again is not None and len(arguments) < WORDS
        self._again, self._kinds = again, tuple(arguments)

    def __call__(self, *arguments: int | float | None) -> int:
        """Call the function. Addresses are plain numbers, so that they can be recorded."""
        if OPEN.recorder is not None:
            pairs = zip(self._kinds, arguments, strict=True)
            OPEN.recorder.add(self._again, [_word(kind, value) for kind, value in pairs])
        return self._call(*arguments)


class Tape:
    """Recorded calls, in order."""

    def __init__(self) -> None:
        self._calls: list[list[int]] = []

    def add(self, kernel: int, words: Sequence[int]) -> None:
        """As Recorder.add."""
        self._calls.append([kernel, *words, *[0] * (WORDS - 1 - len(words))])

    def words(self) -> Ints:
        """[calls, WORDS], as the library plays them (native/play.cpp)."""
        return np.array(self._calls, dtype=np.int64).reshape(-1, WORDS)


def _word(kind: Any, value: int | float | None) -> int:
    """An argument as native/words.h reads it."""
    if kind is ctypes.c_float:
        (word,) = struct.unpack("q", struct.pack("d", value))
        return int(word)
    return int(value or 0)
