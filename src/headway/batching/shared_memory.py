"""Pass values between processes: large buffers through shared memory, the rest pickled."""

import os
import pickle
from collections.abc import Collection
from multiprocessing.shared_memory import SharedMemory
from typing import Any, NamedTuple

LEAST = 64 * 1024  # bytes of buffers below which a pipe is as fast
PAGE = 4096


class Packed(NamedTuple):
    """A value that another process can unpack. Its buffers are the out-of-band buffers of pickle
    protocol 5 (PEP 574), such as the data of NumPy arrays."""

    pickled: bytes
    sizes: tuple[int, ...]  # bytes of each buffer in the room, one after the other
    buffers: tuple[bytes, ...]  # the buffers themselves, if they are small or do not fit the room


class Room:
    """Shared memory for one value at a time, in both directions. The owner creates and frees it, so
    a worker that dies leaves nothing behind. It is reused: new pages cost more than a copy."""

    def __init__(self) -> None:
        self._memory: SharedMemory | None = None

    @property
    def name(self) -> str:
        """The name by which other processes find the memory; empty: there is none yet."""
        return self._memory.name if self._memory else ""

    def pack(self, value: Any) -> Packed:
        """Pack a value, with its buffers in this room if they are large. Raises what pickle
        raises."""
        pickled, views = _taken_apart(value)
        self.grow(sum(view.nbytes for view in views))
        return _packed(pickled, views, self._memory)

    def unpack(self, packed: Packed) -> Any:
        """Unpack a value that another process packed for this room. If the buffers did not fit,
        grow the room for the next value of this size."""
        self.grow(sum(map(len, packed.buffers)))
        return _unpacked(packed, self._memory)

    def grow(self, size: int) -> None:
        """Make room for this many bytes, if they are at least LEAST and the system has them."""
        if size >= LEAST and (self._memory is None or self._memory.size < size):
            self.close()
            self._memory = _reserved(-(-size // PAGE) * PAGE)

    def close(self) -> None:
        """Free the shared memory."""
        if self._memory:
            self._memory.close()
            self._memory.unlink()
            self._memory = None


def _reserved(size: int) -> SharedMemory | None:
    """New shared memory, with all of its pages; None: the system has not so many. Linux promises
    pages that it does not have, and ends the process (SIGBUS) that writes into them. Docker gives a
    container 64 MiB, unless --shm-size says otherwise."""
    try:
        memory = SharedMemory(create=True, size=size)
    except OSError:
        return None
    try:
        if hasattr(os, "posix_fallocate"):  # macOS has none
            os.posix_fallocate(memory._fd, 0, size)  # type: ignore[attr-defined]
    except OSError:
        memory.close()
        memory.unlink()
        return None
    return memory


_mapped: dict[str, SharedMemory] = {}  # in a worker process: the owner's rooms, by name


def keep(names: Collection[str]) -> None:
    """Let go, in a worker process, of all rooms but these. The owner has replaced the others by
    larger ones, and their memory stays taken until nobody has it mapped."""
    for name in [each for each in _mapped if each not in names]:
        _mapped.pop(name).close()


def unpack(packed: Packed, name: str) -> Any:
    """Unpack a value in a worker process, from the room with this name."""
    return _unpacked(packed, _found(name))


def pack(value: Any, name: str) -> Packed:
    """Pack a value in a worker process, into the room with this name if it is large enough."""
    return _packed(*_taken_apart(value), _found(name))


def _found(name: str) -> SharedMemory | None:
    if not name:
        return None
    if name not in _mapped:
        _mapped[name] = SharedMemory(name)
    return _mapped[name]


def _taken_apart(value: Any) -> tuple[bytes, list[memoryview]]:
    found = list[pickle.PickleBuffer]()
    pickled = pickle.dumps(value, protocol=5, buffer_callback=found.append)
    return pickled, [each.raw() for each in found]


def _packed(pickled: bytes, views: list[memoryview], memory: SharedMemory | None) -> Packed:
    sizes = tuple([view.nbytes for view in views])
    if memory is None or memory.buf is None or not LEAST <= sum(sizes) <= memory.size:
        return Packed(pickled, (), tuple([bytes(view) for view in views]))
    at = 0
    for view, size in zip(views, sizes, strict=True):
        memory.buf[at : at + size] = view
        at += size
    return Packed(pickled, sizes, ())


def _unpacked(packed: Packed, memory: SharedMemory | None) -> Any:
    buffers, at = [bytearray(each) for each in packed.buffers], 0
    for size in packed.sizes:
        assert memory is not None and memory.buf is not None
        buffers.append(bytearray(memory.buf[at : at + size]))
        at += size
    return pickle.loads(packed.pickled, buffers=buffers)
