"""Ctrl-C and SIGTERM: a command that is stopped ends in order, with an exit status that says so."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143  # exit statuses: Ctrl-C, and SIGTERM


class Terminated(BaseException):
    """SIGTERM was received. Like KeyboardInterrupt, it passes every `except Exception`."""


def exit_status(end: BaseException) -> int:
    """Of a command that was stopped by Terminated or KeyboardInterrupt."""
    return TERMINATED if isinstance(end, Terminated) else INTERRUPTED


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises Terminated. Python allows this in the main thread only."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
