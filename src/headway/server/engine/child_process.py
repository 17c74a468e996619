"""ChildProcess: a process that computes, and the server's end of the pipe to it.

Two threads read and write the pipe, so that neither a slow process nor a long message blocks the
event loop. At most BEHIND messages may wait for the loop. Beyond that the reader stops, and the
kernel's buffer fills.
"""

import asyncio
import atexit
import multiprocessing
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Any

BEHIND = 256  # messages that may wait for the loop; beyond that no more are read
GRACE = 5.0  # seconds for a process to end once nothing keeps it alive
MOST_LINE = 4_096  # characters of a line that the process prints; longer lines are split
NOTHING = object()  # ends the writing thread


class ChildProcess:
    """A child process. It starts when the object is created, on the loop's thread.

    target: called in the process with `given`, its end of the pipe, and the pipe for its output
    (None: it prints where the server does). echo: called with each line that the process prints,
    from a thread of its own; None: the process prints where the server does. take: called on the
    loop with each message. ended: called on the loop with the exit status when the process is gone.
    """

    def __init__(
        self,
        target: Callable[..., None],
        given: Any,
        take: Callable[[Any], object],
        ended: Callable[[int | None], object],
        echo: Callable[[str], object] | None,
        *,
        daemon: bool = True,
    ) -> None:
        self._take, self._when_ended = take, ended
        self._loop, self.gone = asyncio.get_running_loop(), asyncio.Event()
        self._outbox: SimpleQueue[Any] = SimpleQueue()  # messages, each with its size
        self._put = self._written = 0  # sizes: changed by the loop's thread, by the writing thread
        self.room = threading.Semaphore(BEHIND)
        context = multiprocessing.get_context("spawn")  # a fork would take our threads' locks along
        ours, theirs = context.Pipe()
        output, words = context.Pipe(duplex=False) if echo else (None, None)
        args = (given, theirs, words)
        process = context.Process(target=target, args=args, name="headway-engine", daemon=daemon)
        process.start()
        theirs.close()  # else the reader would not see the process close its end
        if output and words and echo:
            words.close()
            threading.Thread(target=_overhear, args=(output, echo), daemon=True).start()
        self._process = process
        atexit.register(self.kill)  # multiprocessing would only terminate it, and wait
        writer = threading.Thread(target=self._write, args=(ours,), daemon=True)
        writer.start()
        threading.Thread(target=self._read, args=(process, ours, writer), daemon=True).start()

    @property
    def pid(self) -> int:
        """The process's id; 0: the process is gone."""
        return 0 if self.gone.is_set() else self._process.pid or 0

    @property
    def unsent(self) -> int:
        """The sizes of the messages that the process has not taken yet: it may hang."""
        return self._put - self._written

    def send(self, message: Any, size: int = 0) -> None:
        """Send the message, unless the process is gone. Another thread pickles it. size: in
        `unsent`."""
        if not self.gone.is_set():
            self._put += size
            self._outbox.put((message, size))

    def kill(self) -> None:
        """Kill the process without waiting for it."""
        with suppress(ValueError):  # it has already been closed
            self._process.kill()

    async def ends_within(self, seconds: float) -> bool:
        """Wait at most this long. Returns whether the process is gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.gone.wait()
        return self.gone.is_set()

    async def end(self) -> bool:
        """Kill the process. Returns whether it is gone; a hung device may keep it alive."""
        self.kill()
        return await self.ends_within(2 * GRACE)

    # -- the writing thread

    def _write(self, channel: Connection) -> None:
        with suppress(OSError):  # the process has died: the reader reports it
            while (entry := self._outbox.get()) is not NOTHING:
                message, size = entry
                channel.send(message)
                self._written += size

    # -- the reading thread

    def _read(self, process: SpawnProcess, channel: Connection, writer: threading.Thread) -> None:
        """Pass on messages until the process ends in any way, and then its exit status."""
        ready = select.poll()
        for each in (channel.fileno(), process.sentinel):
            ready.register(each, select.POLLIN)
        code: int | None = None
        try:
            with suppress(EOFError, OSError):
                while channel.fileno() in [fd for fd, _ in ready.poll()]:
                    message = channel.recv()
                    self.room.acquire()
                    self._loop.call_soon_threadsafe(self._taken, message)
        finally:
            process.join(GRACE)
            process.kill()
            process.join()
            code = process.exitcode
            process.close()
            self._outbox.put(NOTHING)
            writer.join()
            channel.close()
            with suppress(RuntimeError):  # the loop is closed: there is nothing left to tell
                self._loop.call_soon_threadsafe(self._ended, code)

    # -- on the loop

    def _taken(self, message: Any) -> None:
        self.room.release()
        self._take(message)

    def _ended(self, code: int | None) -> None:
        atexit.unregister(self.kill)
        self.gone.set()
        self._when_ended(code)


def manner(code: int | None) -> str:
    """How a process ended, for people. code: its exit status."""
    if code is None or code >= 0:
        return f"exit status {code}; its own words are on the error stream"
    names = {each.value: each.name for each in signal.Signals}
    name = names.get(-code, f"signal {-code}")  # most of the real-time signals have no name
    hint = "; perhaps the machine ran out of memory" if -code == signal.SIGKILL else ""
    return f"killed by {name}{hint}"


def _overhear(output: Connection, on_line: Callable[[str], object]) -> None:
    """Pass on the process's output line by line, until it is closed."""
    with output, open(output.fileno(), encoding="utf-8", errors="replace", closefd=False) as lines:
        while line := lines.readline(MOST_LINE):
            on_line(line.rstrip())
