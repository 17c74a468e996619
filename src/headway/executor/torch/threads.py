"""The number of threads that torch computes with."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def thread_count() -> int:
    """The number of threads that torch computes with in this process."""
    return torch.get_num_threads()


def set_thread_count(count: int) -> None:
    """Compute with this many threads from now on."""
    torch.set_num_threads(count)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Compute with one thread inside the block: for a thread that loads a model but runs no steps.

    Each thread that computes in parallel keeps its own worker threads. With more workers than
    cores, OpenMP lets them sleep at each barrier instead of spinning: on two cores, a step of a
    0.5B model then takes 1.2 times as long (docs/decisions/0010).
    """
    count = thread_count()
    set_thread_count(1)
    try:
        yield
    finally:
        set_thread_count(count)
