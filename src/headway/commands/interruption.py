"""Ctrl-C and SIGTERM: a command that is stopped ends in order, with an exit status that says so."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143  # exit statuses: Ctrl-C, and SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM was received. asyncio lets a KeyboardInterrupt of a callback end its loop."""


def exit_status(end: KeyboardInterrupt) -> int:
    """Of a command that was stopped."""
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
    """In a running loop a callback of its own raises it. In the middle of another callback, or of
    the parser that called it, the exception could be taken for an error of theirs."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise Terminated from None
    loop.call_soon_threadsafe(_raise_terminated)


def _raise_terminated() -> None:
    raise Terminated
