"""kept_choice: the fastest kernels on this machine, measured once and stored with the library."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import torch

Kind = TypeVar("Kind", bound=StrEnum)


def kept_choice(
    library: Path, name: str, kinds: type[Kind], count: int, measured: Callable[[], Sequence[Kind]]
) -> list[Kind]:
    """The stored result of `measured`: `count` of `kinds`.

    It is called once per build of the kernels and version of torch. name: of the choice, part of
    the file's name.
    """
    file = library.with_suffix(f".{name}.json")
    known = _read(file, kinds, count)
    if torch.__version__ not in known:
        known[torch.__version__] = list(measured())
        part = file.with_suffix(f".{os.getpid()}")
        try:
            part.write_text(json.dumps(known))
            part.replace(file)
        except OSError:
            part.unlink(missing_ok=True)  # the next process measures again
    return known[torch.__version__]


def _read(file: Path, kinds: type[Kind], count: int) -> dict[str, list[Kind]]:
    """The stored choices by version of torch; empty if the file is missing or invalid."""
    try:
        known = json.loads(file.read_text())
        return {
            version: [kinds(kind) for _, kind in zip(range(count), found, strict=True)]
            for version, found in known.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread inside the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def own_time(work: Callable[[], object]) -> int:
    """CPU nanoseconds that the work takes in this thread; other threads do not count."""
    began = time.thread_time_ns()
    work()
    return time.thread_time_ns() - began
