"""The server's half of the engine process.

All of it runs on the event loop's thread, but for two threads that read and write the pipe, so that
neither a slow engine nor a long prompt holds up the loop.
"""

import asyncio
import atexit
import multiprocessing
import select
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Any

from headway.core.batch import Event
from headway.core.commands import Add, Cancel, Close, Command, Retune, Stop
from headway.core.load import Load
from headway.core.request import Request
from headway.errors import DrainingError, EngineDownError, HeadwayError, RefusedError
from headway.live.callers import Caller, Callers
from headway.live.clock import WallClock
from headway.server.engine.engine_process import run
from headway.server.engine.handle import EngineState, Resized, Rows
from headway.server.engine.in_flight import InFlight
from headway.server.engine.messages import EngineOptions, Failed, Progress, Step, Welcome

__all__ = ["EngineClient", "EngineOptions", "Welcome"]

BEHIND = 256  # messages that may wait for the loop; then no more are read
GRACE = 5.0  # seconds for a process to end that nothing keeps
MOST_LINE = 4_096  # characters of a line that the process prints; longer ones are split
SILENT = 120.0  # seconds without news from an engine with work: no step takes so long


def _nobody(*told: Sequence[Any]) -> None:
    """Takes the ledger's rows and the events until somebody else does."""


class EngineClient:
    """An engine in a process of its own; server.engine.handle.EngineHandle. Started once.

    What may gather is bounded. If the server is slow: BEHIND messages here, one for each step; then
    the kernel's buffer; then the engine waits, for STALL seconds at most. If the engine is slow:
    the requests that admission lets wait, and a command or two for each.

    An engine that hangs in a step, perhaps with its device, counts as down when it has sent nothing
    for SILENT seconds. Its callers are told, and its process is killed.

    echo: called with each line that the process prints, by a thread of its own; None: the process
    prints where the server does.
    """

    def __init__(self, options: EngineOptions, echo: Callable[[str], object] | None = None) -> None:
        self.options, self._echo = options, echo
        self.rows: Rows = _nobody  # called with the ledger's rows, before the step's events
        self.events: Callable[[list[Event]], object] = _nobody  # and with those
        self.resized: Resized = _nobody  # and with changes of sizes
        self._state = EngineState.LOADING  # DOWN: it has failed, for good
        self._fault = self.journal = ""  # why it has failed; why the journal has stopped
        self._clock = WallClock()
        self._heard = self._clock.now()  # when it last sent a step, or had nothing to do
        self._in_flight, self._callers = InFlight(), Callers()
        self._outbox: SimpleQueue[tuple[Command, ...] | None] = SimpleQueue()
        self._process: SpawnProcess | None = None
        self._error: HeadwayError | None = None  # the process's last words
        self._leaving = False  # we have asked it to end
        self._gone, self._over = asyncio.Event(), asyncio.Event()
        self._room = threading.Semaphore(BEHIND)

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def down(self) -> str:
        return self._fault

    @property
    def load(self) -> Load:
        """Of the latest step that was heard of, with the requests sent since."""
        return self._in_flight.load

    @property
    def pid(self) -> int:
        """The engine process's; 0: there is none."""
        return (self._process.pid or 0) if self._process and not self._gone.is_set() else 0

    async def start(self, progress: Callable[[str], object] = lambda text: None) -> Welcome:
        """Load the model; the engine is ready when this returns. Raises what kept it from that."""
        assert not self._process, "an engine is started once"
        self._progress, self._loop = progress, asyncio.get_running_loop()
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        context = multiprocessing.get_context("spawn")  # a fork would take our threads' locks along
        ours, theirs = context.Pipe()
        output, words = context.Pipe(duplex=False) if self._echo else (None, None)
        given, daemon = (self.options, theirs, words), self.options.daemon
        process = context.Process(target=run, args=given, name="headway-engine", daemon=daemon)
        process.start()
        theirs.close()  # or its end would not be seen here
        if output and words and self._echo:
            words.close()
            threading.Thread(target=_overhear, args=(output, self._echo), daemon=True).start()
        self._process = process
        atexit.register(self._kill)  # multiprocessing would ask it politely, and wait
        writer = threading.Thread(target=self._write, args=(ours,), daemon=True)
        writer.start()
        threading.Thread(target=self._read, args=(process, ours, writer), daemon=True).start()
        return await asyncio.shield(self._welcome)

    def submit(
        self, requests: Iterable[Request], caller: Caller, instead: Iterable[Request] = ()
    ) -> None:
        """As EngineHandle.submit. The caller is told, and flushed once per step, on the loop's
        thread."""
        submitted = tuple(requests)
        self._callers.check_up()
        if self._state is EngineState.LOADING:
            raise EngineDownError("the engine is still loading its model: ask again")
        now = self._clock.now()
        self._heard = self._heard if self._in_flight.pending else now
        if refused := self._in_flight.admit(submitted, now, instead):
            raise RefusedError(refused.reason, refused.retry_at)
        self._callers.add([request.id for request in submitted], caller)
        self._send([Add(request) for request in submitted])

    def cancel(self, ids: Iterable[str]) -> None:
        self._send([Cancel(id) for id in ids])

    def stop(self, id: str, keep: int) -> None:
        self._send([Stop(id, keep)])

    def retune(self, retune: Retune) -> None:
        self._send([retune])

    async def drain(self, timeout: float) -> None:
        """Finish what was accepted, and close. What has not ended by then fails: DrainingError."""
        if self._state is EngineState.READY:
            self._leave()
            self._send([Close()])
            if not await self._ends_within(timeout):
                left = self._callers.open
                why = f"the server is closing, and this did not end within {timeout:g} s"
                self._callers.fail(DrainingError(why))
                self.cancel(left)
                await self._ends_within(GRACE)
        await self.close()

    async def close(self) -> None:
        """End the process now, and leave no orphan and no zombie. Callers that wait, or come still,
        get a DrainingError: another server will take them."""
        self._leave()
        self._callers.fail(DrainingError("the server has closed"))
        await self.end()

    async def end(self) -> bool:
        """Kill the process. Returns whether it is gone; it may not be while its device hangs."""
        if not self._process:
            return True
        self._kill()
        return await self._ends_within(2 * GRACE)

    async def over(self) -> None:
        """Wait until it is down or gone."""
        await self._over.wait()

    def _leave(self) -> None:
        self._leaving = True
        if self._state is not EngineState.DOWN:
            self._state = EngineState.DRAINING
        self._in_flight.close()

    async def _ends_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        return self._gone.is_set()

    def _send(self, commands: list[Command]) -> None:
        if commands and not self._gone.is_set():
            self._outbox.put(tuple(commands))

    def _kill(self) -> None:
        with suppress(ValueError):  # its end has been seen
            if self._process:
                self._process.kill()

    # -- the writing thread

    def _write(self, channel: Connection) -> None:
        with suppress(OSError):  # it has died: the reader says so
            while (commands := self._outbox.get()) is not None:
                channel.send(commands)

    # -- the reading thread

    def _read(self, process: SpawnProcess, channel: Connection, writer: threading.Thread) -> None:
        """Pass on messages until the process ends, in whatever way, and then its exit status."""
        ready = select.poll()
        for each in (channel.fileno(), process.sentinel):
            ready.register(each, select.POLLIN)
        code: int | None = None
        try:
            with suppress(EOFError, OSError):
                while channel.fileno() in [fd for fd, _ in ready.poll()]:
                    message = channel.recv()
                    self._room.acquire()
                    self._loop.call_soon_threadsafe(self._take, message)
        finally:
            process.join(GRACE)
            process.kill()
            process.join()
            code = process.exitcode
            process.close()
            self._outbox.put(None)
            writer.join()
            channel.close()
            with suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
                self._loop.call_soon_threadsafe(self._ended, code)

    # -- on the loop

    def _take(self, message: Any) -> None:
        self._room.release()
        match message:
            case Step() if self._fault:
                pass  # it was taken to hang, and its callers were told so
            case Step(events, steps, requests, load, taken, journal, changes):
                self._heard, self.journal = self._clock.now(), journal
                self._in_flight.publish(load, taken)
                try:
                    self.rows(steps, requests)
                    self.events(events)
                    self.resized(changes)
                finally:
                    self._callers.tell(events)
            case Progress(text):
                self._progress(text)
            case Failed(error):
                self._error = error
            case Welcome() if not self._leaving:
                self._in_flight.publish(message.load, 0)
                self._state = EngineState.READY
                self._watch()
                if not self._welcome.cancelled():
                    self._welcome.set_result(message)

    def _watch(self) -> None:
        """See whether the engine hangs, and look again at the earliest time when it could."""
        if self._fault or self._gone.is_set():
            return
        left = SILENT
        if self._in_flight.pending:
            silent = (self._clock.now() - self._heard) / 1e9
            if silent >= SILENT:
                silence = f"has said nothing for {silent:.0f} s"
                self.fail(f"the engine has work and {silence}: its device may hang")
                return self._kill()
            left -= silent
        self._loop.call_later(left, self._watch)

    def fail(self, fault: str) -> None:
        """The engine is down; every caller hears why."""
        self._fault = self._fault or fault
        self._state = EngineState.DOWN
        self._in_flight.close()
        self._over.set()
        self._callers.fail(EngineDownError(self._fault))

    def _ended(self, code: int | None) -> None:
        atexit.unregister(self._kill)
        error = self._error or EngineDownError(f"the engine process has died: {_manner(code)}")
        self._gone.set()
        self._over.set()
        if not self._welcome.done():
            self._welcome.set_exception(error)
            self._welcome.exception()  # whoever waited may have left
        if not self._leaving or self._error:
            self.fail(str(error))
        self._callers.fail(DrainingError("the engine is closed"))


def _overhear(output: Connection, on_line: Callable[[str], object]) -> None:
    """Pass on the process's output line by line, until it is closed."""
    with output, open(output.fileno(), encoding="utf-8", errors="replace", closefd=False) as lines:
        while line := lines.readline(MOST_LINE):
            on_line(line.rstrip())


def _manner(code: int | None) -> str:
    """How the process ended, for people. code: its exit status."""
    if code is None or code >= 0:
        return f"exit status {code}; its own words are on the error stream"
    name = signal.Signals(-code).name
    hint = "; perhaps the machine ran out of memory" if -code == signal.SIGKILL else ""
    return f"killed by {name}{hint}"
