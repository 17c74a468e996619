"""Restarts a failed engine process, after growing pauses and a limited number of times."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from structlog.typing import FilteringBoundLogger as Log

from headway.core.batch import Event
from headway.core.commands import Retune
from headway.core.cost.lane_sizes import WINDOW
from headway.core.ledger import RequestRow, SizeChange, StepRow
from headway.core.load import Load
from headway.core.request import Request
from headway.errors import EngineDownError, first_line
from headway.live.callers import Caller
from headway.server import clock
from headway.server.engine.client import EngineClient
from headway.server.engine.handle import EngineState, Rows
from headway.server.engine.messages import EngineOptions, Welcome

PAUSE = 1.0  # seconds before the first restart; each next pause is four times as long
LONGEST = 30.0  # seconds of such a pause
ERRORS = frozenset({"ERROR", "CRITICAL"})  # as the process's log marks its lines
LEVELS = ERRORS | {"WARNING"}
STEADY = 600.0  # seconds of service after which earlier restarts no longer count


class RestartingEngine:
    """Engine processes, one at a time; server.engine.handle.EngineHandle.

    READY --fault--> LOADING (a pause, a new process, its model) --> READY
                     once too often: DOWN, for good

    The callers of an engine that failed have heard why. The next engine begins with empty lines, an
    empty prefix cache and a journal of its own; ids, lanes and metrics are the server's and go on.
    most: restarts in a row. STEADY seconds of service end the row.
    """

    def __init__(self, options: EngineOptions, most: int, log: Log) -> None:
        self._options, self._most, self._log = options, most, log
        self.rows: Rows = lambda steps, requests: None
        self.events: Callable[[list[Event]], object] = lambda events: None
        self.renewed: Callable[[], object] = lambda: None  # called when the next one is ready
        self._between = False  # an engine has failed, and the next is not ready yet
        self._leaving = False
        self._fault = ""  # why the last engine failed, until the next is ready
        self._since = 0  # when the present engine became ready, nanoseconds; 0: not yet
        self._retune: Retune | None = None  # the latest, for the next engine
        self._client = self._next()

    # -- an EngineHandle

    @property
    def state(self) -> EngineState:
        """The current engine's state; between two engines LOADING, or DRAINING while closing."""
        if self._between:
            return EngineState.DRAINING if self._leaving else EngineState.LOADING
        return self._client.state

    @property
    def down(self) -> str:
        return self._client.down or self._fault

    @property
    def journal(self) -> str:
        return self._client.journal

    @property
    def load(self) -> Load:
        return Load() if self._between else self._client.load

    def submit(
        self, requests: Iterable[Request], caller: Caller, instead: Iterable[Request] = ()
    ) -> None:
        if self._between:
            raise EngineDownError(self.down)
        self._client.submit(requests, caller, instead)

    def cancel(self, ids: Iterable[str]) -> None:
        self._client.cancel(ids)

    def stop(self, id: str, keep: int) -> None:
        self._client.stop(id, keep)

    def retune(self, retune: Retune) -> None:
        self._retune = retune
        if not self._between:
            self._client.retune(retune)

    # -- its life

    @property
    def pid(self) -> int:
        """The present process's; 0: there is none."""
        return self._client.pid

    async def start(self, progress: Callable[[str], object]) -> Welcome:
        """Start the first engine. Raises the error that kept it from starting."""
        self._welcome = await self._client.start(progress)
        self._since = clock.now()
        return self._welcome

    async def stand(self) -> None:
        """Start the next engine whenever one fails, until the server closes or engines have failed
        too often."""
        restarts = 0
        while True:
            await self._client.over()
            if self._leaving or self._client.state is not EngineState.DOWN:
                return
            self._fault = self._client.down
            if self._since and clock.now() - self._since >= STEADY * 1e9:
                restarts = 0
            if restarts >= self._most:
                return self._give_up(restarts)
            pause = min(PAUSE * 4**restarts, LONGEST)
            restarts += 1
            self._between, self._since = True, 0
            details = {"cause": self._fault, "restart": restarts, "of": self._most}
            self._log.error("engine down", **details, restart_in_s=pause)
            if not await self._client.end():
                self._fault = "the engine's process cannot be ended"
                return self._give_up(restarts)
            await asyncio.sleep(pause)
            await self._renew(restarts)

    def _give_up(self, restarts: int) -> None:
        self._between = False
        self._log.critical("engine down for good", cause=self._fault, restarts=restarts)

    async def _renew(self, count: int) -> None:
        """Start the next process. One that cannot start counts as failed, and its `down` says why.
        It is given no request before its model was checked."""
        if self._leaving:
            return
        self._client = self._next()
        began = clock.now()
        try:
            welcome = await self._client.start()
            self._check(welcome)
        except Exception as error:  # perhaps there is no memory for a process, or no thread
            return self._client.fail(first_line(error))
        if self._retune:
            self._client.retune(self._retune)
        self._since, self._fault = clock.now(), ""
        took = round((self._since - began) / 1e9, 3)
        self._log.warning("engine restarted", restart=count, took_s=took, pid=self.pid)
        self.renewed()
        self._between = False

    def _check(self, welcome: Welcome) -> None:
        """The model must be the same as before, since the server keeps its first tokenizer."""
        for name in ("folder", "eos", "context"):
            if getattr(welcome, name) != getattr(self._welcome, name):
                raise EngineDownError(f"the model's {name} is another than when the server started")

    def _next(self) -> EngineClient:
        remote = EngineClient(self._options, self._hear)
        remote.rows, remote.events = self._rows, self._events
        remote.resized = self._resized
        return remote

    def _hear(self, line: str) -> None:
        """Log a line that the process printed: as an error if it says so, else as a warning."""
        level, colon, rest = line.partition(": ")
        log = self._log.error if colon and level in ERRORS else self._log.warning
        log(rest if colon and level in LEVELS else line, source="engine")

    def _rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        self.rows(steps, requests)

    def _events(self, events: list[Event]) -> None:
        self.events(events)

    def _resized(self, changes: Sequence[SizeChange]) -> None:
        for each in changes:
            said = {"lane": each.lane, "what": each.what, "reason": each.reason}
            sizes: dict[str, float] = {"before": each.before, "after": each.after}
            if each.what == WINDOW:
                sizes = {f"{name}_ms": round(size / 1e6, 3) for name, size in sizes.items()}
            self._log.info("size changed", **said, **sizes)

    async def drain(self, timeout: float) -> None:
        """As EngineClient.drain; no other is started."""
        self._leaving = True
        await self._client.drain(timeout)

    async def close(self) -> None:
        """Close the current engine. No other is started after it."""
        self._leaving = True
        await self._client.close()
