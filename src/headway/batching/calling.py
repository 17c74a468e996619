"""Ways to call a function with a list of items: in the thread, in an event loop, in processes."""

import asyncio
import functools
import inspect
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from typing import Any, Protocol

from headway.batching.async_pieces import AsyncPieces
from headway.batching.shared_memory import Packed, Room, keep, pack, unpack
from headway.errors import EngineError, SettingError, first_line

Function = Callable[[list[Any]], Any]


class Calling(Protocol):
    """A way to call a function. One thread calls all methods."""

    def call(self, items: list[Any]) -> Sequence[Any]:
        """Return one result for each item. Raises what the function raises."""
        ...

    def stream(self, items: list[Any]) -> Iterator[Sequence[Any]]:
        """Yield what a generator function yields: each time one piece for each item."""
        ...

    def close(self) -> None: ...


def calling(function: Function, processes: int) -> Calling:
    """The way to call this function. SettingError if processes cannot call it."""
    if not callable(function):
        raise SettingError(f"{function!r} is no function of a list")
    streams = is_stream(function)
    is_async = is_coroutine(function) or is_async_stream(function)
    if processes:
        if streams or is_async:
            raise SettingError("a generator or async function cannot be called in processes")
        return InProcesses(function, processes)
    return InLoop(function) if is_async else InThread(function)


def is_stream(function: Function) -> bool:
    """Whether the function yields pieces."""
    return inspect.isgeneratorfunction(_called(function)) or is_async_stream(function)


def is_async_stream(function: Function) -> bool:
    """Whether the function is an async generator function."""
    return inspect.isasyncgenfunction(_called(function))


def is_coroutine(function: Function) -> bool:
    """Whether the function is a coroutine function."""
    return inspect.iscoroutinefunction(_called(function))


def _called(function: Function) -> Function:
    """What is called: the `__call__` of an object, else the function itself."""
    if inspect.isroutine(function) or isinstance(function, type | functools.partial):
        return function
    return getattr(function, "__call__", function)  # noqa: B004  (of an instance)


class InThread:
    """Call the function directly in the calling thread."""

    def __init__(self, function: Function) -> None:
        self._function = function

    def call(self, items: list[Any]) -> Sequence[Any]:
        count = len(items)  # the function may take items out of the list, or add some
        return checked(self._function(items), count)

    def stream(self, items: list[Any]) -> Iterator[Sequence[Any]]:
        count = len(items)
        for pieces in self._function(items):
            yield checked(pieces, count)

    def close(self) -> None:
        pass


class InLoop:
    """Call the function in an event loop that lives as long as the batcher."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._runner = asyncio.Runner()

    def call(self, items: list[Any]) -> Sequence[Any]:
        count = len(items)
        return checked(self._runner.run(self._function(items)), count)

    def stream(self, items: list[Any]) -> Iterator[Sequence[Any]]:
        count = len(items)
        with closing(AsyncPieces(self._function(items), self._runner.get_loop())) as found:
            for pieces in found:
                yield checked(pieces, count)

    def close(self) -> None:
        self._runner.close()


class InProcesses:
    """Divide each call evenly among processes, which import the function's module afresh.

    Items and results are pickled; large buffers, such as those of arrays, go through shared memory.
    If a process dies, the items of that call fail, and the next call gets new processes. They end
    with this process, even if it is killed.
    """

    def __init__(self, function: Function, count: int) -> None:
        self._function, self._count = function, count
        self._pool = self._started()
        self._rooms = [Room() for _ in range(count)]  # one for each part of a call

    def _started(self) -> ProcessPoolExecutor:
        spawning = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._count, spawning, initializer=_watch_parent)

    def call(self, items: list[Any]) -> Sequence[Any]:
        parts = [part for part in _divided(items, self._count) if part]
        futures = list[Future[Packed]]()
        try:
            for part, room in zip(parts, self._rooms, strict=False):
                packed = room.pack(part)
                names = [each.name for each in self._rooms]
                futures.append(self._pool.submit(_call, self._function, packed, room.name, names))
            answered = zip(futures, self._rooms, strict=False)
            return [result for each, room in answered for result in room.unpack(each.result())]
        except BaseException as error:
            wait(futures)  # the next call reuses the rooms
            if not isinstance(error, BrokenProcessPool):
                raise
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = self._started()
            raise ProcessDiedError("a process of the function has died") from error

    def stream(self, items: list[Any]) -> Iterator[Sequence[Any]]:
        raise SettingError("a generator function cannot be called in processes")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for room in self._rooms:
            room.close()


class ProcessDiedError(EngineError):
    """A process that called the function has died. The call is not repeated."""


def _watch_parent() -> None:
    """Let this process, one of the pool, end with its parent. It waits for calls on a pipe that it
    holds open itself, so it would never learn that the parent was killed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent, "processes of a pool are spawned"
    parent.join()
    os._exit(1)


def _call(function: Function, packed: Packed, room: str, rooms: list[str]) -> Packed:
    """Call the function, in one of the processes. rooms: the names of all rooms.

    Raises what the function raises. That error, and those in place of results, are RuntimeErrors if
    they cannot be pickled and unpickled: they would break the pool, or hide their cause.
    """
    keep(rooms)
    try:
        items = unpack(packed, room)
        count = len(items)
        results = checked(function(items), count)
        return pack([_carried(each) for each in results], room)
    except BaseException as error:
        if (carried := _carried(error)) is error:
            raise
        raise carried from error


def _carried(value: Any) -> Any:
    """The value, but a RuntimeError for an error that cannot be pickled and unpickled."""
    if not isinstance(value, BaseException):
        return value
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # of any kind: the error's class is the user's
        return RuntimeError(f"{type(value).__name__}: {first_line(value)}")
    return value


def _divided(items: list[Any], count: int) -> list[list[Any]]:
    least, more = divmod(len(items), count)
    parts, at = list[list[Any]](), 0
    for part in range(count):
        end = at + least + (part < more)
        parts.append(items[at:end])
        at = end
    return parts


class WrongResultsError(EngineError):
    """A function did not return one result for each item."""


def checked(results: Any, count: int) -> list[Any]:
    """Return the results as a list. Raises WrongResultsError if they are not a sequence of this
    length, and what a sequence raises that computes its results as it is read."""
    try:
        length = len(results)
    except TypeError:
        raise WrongResultsError(
            f"the function returned a {type(results).__name__} for {count} items, not a list of "
            "results"
        ) from None
    is_table = hasattr(results, "columns")  # a DataFrame, whose list is that of its columns
    if is_table or isinstance(results, str | bytes | bytearray | Mapping | set | frozenset):
        raise WrongResultsError(
            f"the function returned a {type(results).__name__}, not a list of results"
        )
    found = list(results) if length == count else []
    if len(found) != count:
        raise WrongResultsError(f"the function returned {length} results for {count} items")
    return found
