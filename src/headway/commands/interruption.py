"""Ctrl-C and SIGTERM: a stopped command shuts down cleanly, with an exit status that says so."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143  # exit statuses: Ctrl-C, and SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM was received. A KeyboardInterrupt, since asyncio lets one from a callback end its
    loop."""


def exit_status(end: KeyboardInterrupt) -> int:
    """The exit status of a stopped command."""
    return TERMINATED if isinstance(end, Terminated) else INTERRUPTED


@contextmanager
def terminable() -> Iterator[None]:
    """A context in which SIGTERM raises Terminated. Python allows this in the main thread only;
    elsewhere it does nothing."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    """Raise Terminated; in a running loop, from a callback of its own. Raised inside another
    callback, or the parser that called it, it could pass for an error of that code."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise Terminated from None
    loop.call_soon_threadsafe(_raise_terminated)


def _raise_terminated() -> None:
    raise Terminated
