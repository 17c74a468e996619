"""The server's half of the engine process. All of it runs on the event loop's thread."""

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

SILENT = 120.0  # seconds without news from an engine with work: no step takes so long


def _nobody(*told: Sequence[Any]) -> None:
    """Takes the ledger's rows and the events until somebody else does."""


class EngineClient:
    """An engine in a process of its own; server.engine.handle.EngineHandle. Started once.

    What may gather is bounded. If the server is slow: what ChildProcess holds, a message for each
    step; then the engine waits, for STALL seconds at most. If the engine is slow: the requests that
    admission lets wait, and a command or two for each.

    An engine that hangs in a step, perhaps with its device, counts as down when it has sent nothing
    for SILENT seconds. Its callers are told, and its process is killed.

    echo: called with each line that the process prints, by a thread of its own; None: the process
    prints where the server does.
    """

    def __init__(self, options: EngineOptions, echo: Callable[[str], object] | None = None) -> None:
        self.options, self._echo = options, echo
        self.rows: Rows = _nobody  # called with the ledger's rows, before the step's events
        self.staged: Staged = _nobody  # called before that
        self.events: Callable[[list[Event]], object] = _nobody  # and with those
        self.resized: Resized = _nobody  # and with changes of sizes
        self._state = EngineState.LOADING  # DOWN: it has failed, for good
        self._fault = self.journal = ""  # why it has failed; why the journal has stopped
        self._clock = WallClock()
        self._heard = self._clock.now()  # when it last sent a step, or had nothing to do
        self._in_flight, self._callers = InFlight(), Callers()
        self._process: ChildProcess | None = None
        self._error: HeadwayError | None = None  # the process's last words
        self._leaving = False  # we have asked it to end
        self._over = asyncio.Event()

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def down(self) -> str:  # as EngineHandle.down
        return self._fault

    @property
    def load(self) -> Load:
        """Of the latest step that was heard of, with the requests sent since."""
        return self._in_flight.load

    @property
    def pid(self) -> int:
        """The engine process's; 0: there is none."""
        return self._process.pid if self._process else 0

    async def start(self, progress: Callable[[str], object] = lambda text: None) -> Welcome:
        """Load the model; the engine is ready when this returns. Raises what kept it from that."""
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

    async def drain(self, timeout: float, whole: float = 0.0) -> None:
        """Finish what was accepted, and close. What has not ended by then fails: DrainingError.

        whole: seconds of the server's drain, of which these are left; 0: these are all.
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
        """End the process now, and leave no orphan and no zombie. Callers that wait, or come still,
        get a DrainingError: another server will take them."""
        self._leave()
        self._callers.fail(DrainingError("the server has closed"))
        await self.end()

    async def end(self) -> bool:
        """Kill the process. Returns whether it is gone; it may not be while its device hangs."""
        return await self._process.end() if self._process else True

    async def over(self) -> None:
        """Wait until it is down or gone."""
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

    # -- what it says

    def _take(self, message: Any) -> None:
        match message:
            case Step() if self._fault:
                pass  # it was taken to hang, and its callers were told so
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
        """See whether the engine hangs, and look again at the earliest time when it could."""
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
        """The engine is down; every caller hears why."""
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
            self._welcome.exception()  # whoever waited may have left
        if not self._leaving or self._error:
            self.fail(str(error))
        self._callers.fail(DrainingError("the engine is closed"))
