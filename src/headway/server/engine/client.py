"""EngineClient: the server's side of the engine process. Runs on the event loop's thread."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headway.core.batch import Event
from headway.core.commands import Add, Cancel, Close, Command, Retune, Stop
from headway.core.load import Load
from headway.core.request import Request
from headway.errors import DrainingError, EngineDownError, HeadwayError, RefusedError
from headway.live.callers import Caller, Callers
from headway.live.clock import WallClock
from headway.server.engine.child_process import GRACE, ChildProcess, manner
from headway.server.engine.engine_process import run
from headway.server.engine.handle import EngineState, Resized, Rows, Staged
from headway.server.engine.in_flight import InFlight
from headway.server.engine.messages import EngineOptions, Failed, Progress, Step, Welcome

__all__ = ["EngineClient", "EngineOptions", "Welcome"]

SILENT = 120.0  # seconds without a message from an engine with work; no step takes this long


def _nobody(*told: Sequence[Any]) -> None:
    """Drops the rows and events until another callback is set."""


class EngineClient:
    """An engine in a process of its own, as an EngineHandle. It is started once.

    What may pile up is bounded. If the server is slow: the messages that ChildProcess holds, one
    per step; then the engine waits, at most STALL seconds. If the engine is slow: the requests that
    admission lets wait, with a command or two each.

    An engine that hangs in a step, perhaps with its device, counts as down once it has work and has
    sent nothing for SILENT seconds. Its callers are told, and its process is killed.

    echo: called with each line that the process prints, from a thread of its own; None: the process
    prints where the server does.
    """

    def __init__(self, options: EngineOptions, echo: Callable[[str], object] | None = None) -> None:
        self.options, self._echo = options, echo
        self.rows: Rows = _nobody  # called with the ledger's rows, before the step's events
        self.staged: Staged = _nobody  # called before `rows`, with the requests' stages
        self.events: Callable[[list[Event]], object] = _nobody  # called after `rows`
        self.resized: Resized = _nobody  # called after `events`, with changes of sizes
        self._state = EngineState.LOADING  # DOWN: failed for good
        self._fault = self.journal = ""  # why the engine failed; why the journal stopped
        self._clock = WallClock()
        self._heard = self._clock.now()  # when the engine last sent a step, or was last idle
        self._in_flight, self._callers = InFlight(), Callers()
        self._process: ChildProcess | None = None
        self._error: HeadwayError | None = None  # from the process's last message
        self._leaving = False  # whether we asked the process to end
        self._over = asyncio.Event()

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def down(self) -> str:  # as EngineHandle.down
        return self._fault

    @property
    def load(self) -> Load:
        """The load after the latest step received, with the requests sent since."""
        return self._in_flight.load

    @property
    def pid(self) -> int:
        """The engine process's id; 0: there is no process."""
        return self._process.pid if self._process else 0

    async def start(self, progress: Callable[[str], object] = lambda text: None) -> Welcome:
        """Load the model. The engine is ready when this returns. Raises the error if loading
        fails."""
        assert not self._process, "an engine is started once"
        self._progress, self._loop = progress, asyncio.get_running_loop()
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        daemon = self.options.daemon
        about = self.options, self._take, self._ended, self._echo
        self._process = ChildProcess(run, *about, daemon=daemon)
        return await asyncio.shield(self._welcome)

    def submit(
        self, requests: Iterable[Request], caller: Caller, instead: Iterable[Request] = ()
    ) -> None:
        """As EngineHandle.submit. The caller gets its events, and one flush per step, on the loop's
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

    async def drain(self, timeout: float, whole: float = 0.0) -> None:
        """Finish the accepted requests, and close. Requests still open after `timeout` seconds fail
        with DrainingError.

        whole: seconds of the server's whole drain, of which `timeout` are left; 0: all are left.
        """
        if self._state is EngineState.READY:
            self._leave()
            self._send([Close()])
            if not await self._ends_within(timeout):
                left = self._callers.open
                seconds = whole or timeout
                why = f"the server is closing, and this did not end within {seconds:g} s"
                self._callers.fail(DrainingError(why))
                self.cancel(left)
                await self._ends_within(GRACE)
        await self.close()

    async def close(self) -> None:
        """End the process now, without leaving an orphan or a zombie. Waiting and later callers get
        a DrainingError: another server will take their requests."""
        self._leave()
        self._callers.fail(DrainingError("the server has closed"))
        await self.end()

    async def end(self) -> bool:
        """Kill the process. Returns whether it is gone; a hung device may keep it alive."""
        return await self._process.end() if self._process else True

    async def over(self) -> None:
        """Wait until the engine is down or its process is gone."""
        await self._over.wait()

    def _leave(self) -> None:
        self._leaving = True
        if self._state is not EngineState.DOWN:
            self._state = EngineState.DRAINING
        self._in_flight.close()

    async def _ends_within(self, seconds: float) -> bool:
        return await self._process.ends_within(seconds) if self._process else True

    def _send(self, commands: list[Command]) -> None:
        if commands and self._process:
            self._process.send(tuple(commands))

    # -- messages from the process

    def _take(self, message: Any) -> None:
        match message:
            case Step() if self._fault:
                pass  # the engine was declared hung, and its callers were told
            case Step(events, steps, requests, load, taken, journal, changes, stages):
                self._heard, self.journal = self._clock.now(), journal
                self._in_flight.publish(load, taken)
                try:
                    self.staged(stages)
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
        """Check whether the engine hangs, and check again at the earliest time at which it could
        count as hung."""
        if self._over.is_set():
            return
        left = SILENT
        if self._in_flight.pending:
            silent = (self._clock.now() - self._heard) / 1e9
            if silent >= SILENT:
                silence = f"has said nothing for {silent:.0f} s"
                self.fail(f"the engine has work and {silence}: its device may hang")
                if self._process:
                    self._process.kill()
                return
            left -= silent
        self._loop.call_later(left, self._watch)

    def fail(self, fault: str) -> None:
        """Mark the engine as down, and tell every caller why."""
        self._fault = self._fault or fault
        self._state = EngineState.DOWN
        self._in_flight.close()
        self._over.set()
        self._callers.fail(EngineDownError(self._fault))

    def _ended(self, code: int | None) -> None:
        error = self._error or EngineDownError(f"the engine process has died: {manner(code)}")
        self._over.set()
        if not self._welcome.done():
            self._welcome.set_exception(error)
            self._welcome.exception()  # mark it as retrieved: start() may have been cancelled
        if not self._leaving or self._error:
            self.fail(str(error))
        self._callers.fail(DrainingError("the engine is closed"))
