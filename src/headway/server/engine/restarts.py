"""Restarts a failed process, after growing pauses and a limited number of times."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger as Log

from headway.core.accounts.stages import RequestStages
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
from headway.server.engine.handle import EngineState, Rows, Staged
from headway.server.engine.messages import EngineOptions, Welcome

PAUSE = 1.0  # seconds before the first restart; each further pause is four times as long
LONGEST = 30.0  # seconds that a pause lasts at most
ERRORS = frozenset({"ERROR", "CRITICAL"})  # as the process's log marks its lines
LEVELS = ERRORS | {"WARNING"}
OTHER = "the model's {} is another than when the server started"
STEADY = 600.0  # seconds of service after which earlier restarts no longer count


class Client(Protocol):
    """The server's side of one process, which is started once."""

    @property
    def state(self) -> EngineState: ...

    @property
    def down(self) -> str: ...

    @property
    def pid(self) -> int: ...

    async def start(self, progress: Callable[[str], object] = ...) -> Any: ...
    async def over(self) -> None: ...
    async def end(self) -> bool: ...
    def fail(self, fault: str) -> None: ...
    async def drain(self, timeout: float, whole: float = 0.0) -> None: ...
    async def close(self) -> None: ...


W = TypeVar("W")  # what a process reports when it is ready
C = TypeVar("C", bound=Client)


class Restarting(Generic[C, W]):
    """A Backend whose process is replaced when it fails. One process runs at a time.

    READY --fault--> LOADING (a pause, a new process, its model) --> READY
                     after `most` restarts: DOWN for good

    The callers of a failed process have been told why. most: consecutive restarts; STEADY seconds
    of service reset the count. what: the name that the log uses for the process.
    """

    def __init__(self, most: int, log: Log, what: str = "engine") -> None:
        self._most, self._log, self._what = most, log, what
        self.renewed: Callable[[], object] = lambda: None  # called when the next process is ready
        self.gave_up: Callable[[], object] = lambda: None  # called when no more are started
        self._between = False  # a process has failed, and the next is not ready yet
        self._leaving = False
        self._fault = ""  # why the last process failed, until the next is ready
        self.was_ready = False  # once; the process may have failed since
        self._since = 0  # when the current process became ready, nanoseconds; 0: not yet
        self._client = self._next()

    def _next(self) -> C:
        """A new client, whose process has not been started."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """A hook: the new process is ready and has no request yet."""

    def _check(self, first: W, welcome: W) -> None:
        """Raises EngineDownError if the new process has another model than the first had."""

    @property
    def state(self) -> EngineState:
        """The current process's state. Between two processes: LOADING, or DRAINING when closing."""
        if self._between:
            return EngineState.DRAINING if self._leaving else EngineState.LOADING
        return self._client.state

    @property
    def down(self) -> str:
        return self._client.down or self._fault

    @property
    def pid(self) -> int:
        """The current process's id; 0: there is none."""
        return self._client.pid

    async def start(self, progress: Callable[[str], object]) -> W:
        """Start the first process. Raises the error if it cannot start."""
        self._welcome: W = await self._client.start(progress)
        self._since, self.was_ready = clock.now(), True
        return self._welcome

    async def stand(self) -> None:
        """Start a new process whenever one fails, until the server closes or the processes have
        failed too often."""
        restarts = 0
        while True:
            await self._client.over()
            if self._leaving or self._client.state is not EngineState.DOWN:
                return
            self._fault = self._client.down
            if self._since and clock.now() - self._since >= STEADY * 1e9:
                restarts = 0
            if restarts >= self._most:
                self._give_up(restarts)
                await self._client.end()  # it may still run, if refused for another model
                return
            pause = min(PAUSE * 4**restarts, LONGEST)
            restarts += 1
            self._between, self._since = True, 0
            details = {"cause": self._fault, "restart": restarts, "of": self._most}
            self._log.error(f"{self._what} down", **details, restart_in_s=pause)
            if not await self._client.end():
                self._fault = f"the {self._what}'s process cannot be ended"
                return self._give_up(restarts)
            await asyncio.sleep(pause)
            await self._renew(restarts)

    def _give_up(self, restarts: int) -> None:
        self._between = False
        self._log.critical(f"{self._what} down for good", cause=self._fault, restarts=restarts)
        self.gave_up()

    async def _renew(self, count: int) -> None:
        """Start the next process. A process that cannot start counts as failed, and its `down` says
        why. It gets no request before its model is checked."""
        if self._leaving:
            return
        self._client = self._next()
        began = clock.now()
        try:
            welcome = await self._client.start()
            self._check(self._welcome, welcome)
            self._prepare()
        except Exception as error:  # for instance no memory for a process, or no thread
            return self._client.fail(first_line(error))
        self._since, self._fault = clock.now(), ""
        took = round((self._since - began) / 1e9, 3)
        self._log.warning(f"{self._what} restarted", restart=count, took_s=took, pid=self.pid)
        self.renewed()
        self._between = False

    def _hear(self, line: str) -> None:
        """Log a line that the process printed: as an error if its level says so, else a warning."""
        level, colon, rest = line.partition(": ")
        log = self._log.error if colon and level in ERRORS else self._log.warning
        log(rest if colon and level in LEVELS else line, source=self._what)

    async def drain(self, timeout: float, whole: float = 0.0) -> None:
        """Drain the current process as Client.drain does. No other is started after it."""
        self._leaving = True
        await self._client.drain(timeout, whole)

    async def close(self) -> None:
        """Close the current process. No other is started after it."""
        self._leaving = True
        await self._client.close()


class RestartingEngine(Restarting[EngineClient, Welcome]):
    """An EngineHandle whose engine process is replaced when it fails.

    A new engine begins with empty lines, an empty prefix cache and a journal of its own. Ids, lanes
    and metrics belong to the server and go on.
    """

    def __init__(self, options: EngineOptions, most: int, log: Log) -> None:
        self._options = options
        self.rows: Rows = lambda steps, requests: None
        self.staged: Staged = lambda stages: None
        self._retune: Retune | None = None  # the latest, for the next engine
        self.events: Callable[[list[Event]], object] = lambda events: None
        super().__init__(most, log)

    def give_memory(self, size: int, beside: int) -> None:
        """Set, before the start, how many bytes the engine may take (`size`) and how many engines
        share the processor, itself included (`beside`)."""
        self._options = replace(self._options, memory=size, engines=beside)
        self._client = self._next()

    @property
    def journal(self) -> str:
        return self._client.journal

    @property
    def load(self) -> Load:
        """The current engine's load. After a fault, until the next engine is ready or for good, it
        is empty but for the known capacity of one request."""
        if self._between or self._client.state is EngineState.DOWN:
            return Load(capacity=self._welcome.capacity) if self.was_ready else Load()
        return self._client.load

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

    def _prepare(self) -> None:
        if self._retune:
            self._client.retune(self._retune)

    def _check(self, first: Welcome, welcome: Welcome) -> None:
        """The model must be the same as before, since the server keeps its first tokenizer."""
        for name in ("folder", "eos", "context"):
            if getattr(welcome, name) != getattr(first, name):
                raise EngineDownError(OTHER.format(name))
        if not welcome.tokenizer.is_like(first.tokenizer):
            raise EngineDownError(OTHER.format("tokenizer"))

    def _next(self) -> EngineClient:
        remote = EngineClient(self._options, self._hear)
        remote.rows, remote.events = self._rows, self._events
        remote.resized, remote.staged = self._resized, self._staged
        return remote

    def _rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        self.rows(steps, requests)

    def _staged(self, stages: Sequence[RequestStages]) -> None:
        self.staged(stages)

    def _events(self, events: list[Event]) -> None:
        self.events(events)

    def _resized(self, changes: Sequence[SizeChange]) -> None:
        for each in changes:
            said = {"lane": each.lane, "what": each.what, "reason": each.reason}
            sizes: dict[str, float] = {"before": each.before, "after": each.after}
            if each.what == WINDOW:
                sizes = {f"{name}_ms": round(size / 1e6, 3) for name, size in sizes.items()}
            self._log.info("size changed", **said, **sizes)
