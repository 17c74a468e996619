"""How many threads torch computes with, in this process and for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def thread_count() -> int:
    """That torch's products are divided among, in this process."""
    return torch.get_num_threads()


def set_thread_count(count: int) -> None:
    """From now on."""
    torch.set_num_threads(count)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Computes without helpers, for a thread that loads a model and leaves the steps to another.

    Each thread that computes in parallel keeps helpers of its own. With more of all threads'
    together than there are cores OpenMP lets them sleep at every barrier rather than spin: on two
    cores a step of 0.5B then takes 1.2 times as long (docs/decisions/0010).
    """
    count = thread_count()
    set_thread_count(1)
    try:
        yield
    finally:
        set_thread_count(count)
