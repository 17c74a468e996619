"""Tape: calls of kernels, recorded with their arguments, so that one call makes them all again."""

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

WORDS = 20  # of a call: the kernel's address, and at most so many arguments but one


class Recorder(Protocol):
    """Is told of each call."""

    def add(self, kernel: int, arguments: Sequence[int | float | None]) -> None:
        """kernel: the address of its NAME_again (native/words.h)."""
        ...


class _Open(threading.local):
    """The recorder of a thread, while there is one."""

    recorder: Recorder | None = None


OPEN = _Open()


class Kernel:
    """A function of the library."""

    __slots__ = ("_again", "_call")

    def __init__(
        self, library: ctypes.CDLL, name: str, arguments: Sequence[Any], result: Any = None
    ) -> None:
        self._call: Callable[..., int] = library[name]
        self._call.argtypes, self._call.restype = arguments, result
        again = ctypes.cast(library[f"{name}_again"], ctypes.c_void_p).value
        assert again is not None and len(arguments) < WORDS
        self._again = again

    def __call__(self, *arguments: int | float | None) -> int:
        """Addresses are plain numbers, so that they can be recorded."""
        if OPEN.recorder is not None:
            OPEN.recorder.add(self._again, arguments)
        return self._call(*arguments)


class Tape:
    """Calls in their order. Whoever plays it sees to it that their memory is still there."""

    def __init__(self, play: Callable[[int, int, int], None]) -> None:
        """play: the library's."""
        self._play = play
        self._calls: list[list[int]] = []
        self._words = np.zeros((0, WORDS), dtype=np.int64)

    def add(self, kernel: int, arguments: Sequence[int | float | None]) -> None:
        """As Recorder.add."""
        words = [kernel, *map(_word, arguments)]
        self._calls.append([*words, *[0] * (WORDS - len(words))])

    def play(self) -> None:
        """Make all calls again."""
        if len(self._words) < len(self._calls):
            self._words = np.array(self._calls, dtype=np.int64)
        self._play(self._words.ctypes.data, len(self._words), WORDS)


def _word(argument: int | float | None) -> int:
    """As native/words.h reads it."""
    if isinstance(argument, float):
        (word,) = struct.unpack("q", struct.pack("d", argument))
        return int(word)
    return int(argument or 0)
