"""How many threads torch computes with, in this process and for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def thread_count() -> int:
    """The threads that torch computes with in this process."""
    return torch.get_num_threads()


def set_thread_count(count: int) -> None:
    """Compute with so many threads from now on."""
    torch.set_num_threads(count)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Compute with one thread meanwhile: for a thread that loads a model and runs no steps.

    Each thread that computes in parallel keeps worker threads of its own. If there are more of
    them than cores, OpenMP lets them sleep at each barrier instead of spinning: on two cores, a
    step of a 0.5B model then takes 1.2 times as long (docs/decisions/0010).
    """
    count = thread_count()
    set_thread_count(1)
    try:
        yield
    finally:
        set_thread_count(count)
