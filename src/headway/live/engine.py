"""The engine in its own thread, for callers in any other thread (LiveEngine)."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from weakref import WeakKeyDictionary, finalize

from headway.core.accounts.accounts import Accounts
from headway.core.accounts.stages import RequestStages
from headway.core.admission import Refuse, admit
from headway.core.batch import Event
from headway.core.commands import Add, Cancel, Close, Enough, Retune, Stop
from headway.core.ledger import RequestRow, StepRow
from headway.core.load import Load
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.engine import Engine, Executor, forgotten
from headway.errors import EngineDownError, RefusedError, first_line
from headway.executor.guarded import GuardedExecutor
from headway.journal.record import Record
from headway.live.callers import Caller, Callers, LoopCaller, QueueCaller, Told, heard
from headway.live.clock import WallClock
from headway.live.inbox import LiveInbox

LEAVING = 10.0  # seconds to wait for the step under way, at a program's end or in a cut-off close
FORKED = "the engine's thread is in the process that this one was forked from: start another here"


class LiveEngine:
    """An engine that any thread may call. Only the engine's own thread touches the scheduler.

    After every step, in the engine's thread, `keep` gets the journal's record, `staged`, if given,
    gets where the time of the ended requests went, and `rows` gets the ledger's rows. The ledger
    is emptied after every step, so a server's memory stays flat.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        keep: Callable[[Record], object] = forgotten,
        rows: Callable[[list[StepRow], list[RequestRow]], object] = lambda steps, requests: None,
        staged: Callable[[list[RequestStages]], object] | None = None,
    ) -> None:
        if staged:
            scheduler.accounts = Accounts(scheduler.roster)
        self.clock = WallClock()
        self._inbox = LiveInbox(self.clock)
        executor.on_back(self._inbox.wake)
        self._engine = Engine(scheduler, GuardedExecutor(executor), self._inbox, self.clock, keep)
        self._rows, self._staged = rows, staged
        self._callers, self._process = Callers(), os.getpid()
        # For each event loop, the list that its callers share. Only the engine's thread changes it.
        self._told: WeakKeyDictionary[asyncio.AbstractEventLoop, Told] = WeakKeyDictionary()
        self._over = threading.Event()  # in Python 3.11 an interrupted join forgets that it runs
        self._thread = threading.Thread(target=self._run, name="headway-engine", daemon=True)
        self._leaving = finalize(
            self, _leave, self._process, self._inbox, self._callers, self._over
        )
        try:
            self._thread.start()
        except BaseException:  # the system has no thread left: there is nothing to wait for
            self._over.set()
            raise

    @property
    def load(self) -> Load:
        """The load snapshot after the latest step."""
        return self._engine.load

    @property
    def is_here(self) -> bool:
        """Whether the engine's thread is in this process, and not in one that this was forked
        from."""
        return self._process == os.getpid()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is in the engine's thread: nobody answers while it waits there."""
        return threading.current_thread() is self._thread

    @property
    def down(self) -> str:
        """Why the engine takes no more requests; empty while it takes them."""
        return self._callers.down if self.is_here else FORKED

    def _check_here(self) -> None:
        """Raise EngineDownError in a forked process, where nobody would ever answer."""
        if not self.is_here:
            raise EngineDownError(FORKED)

    def submit(self, requests: Iterable[Request], caller: Caller) -> None:
        """Submit all requests; their events go to the caller. Raises RefusedError and submits none
        if one of them is refused, and EngineDownError if the engine is down."""
        submitted = list(requests)
        self._check_here()
        self._callers.check_up()
        for request in submitted:
            if isinstance(answer := admit(request, self.load, self.clock.now()), Refuse):
                raise RefusedError(answer.reason, answer.retry_at)
        self._callers.add([request.id for request in submitted], caller)
        self._inbox.put([Add(request) for request in submitted])

    def offer(self, requests: Iterable[Request], caller: Caller, enough: bool = False) -> None:
        """Submit each request by itself. A refusal comes as an event, like any other end.

        enough: no more requests will come for now. Raises EngineDownError if the engine is down.
        """
        submitted = list(requests)
        self._check_here()
        self._callers.add([request.id for request in submitted], caller)
        self._inbox.put([*map(Add, submitted), *([Enough()] if enough else [])])

    def cancel(self, ids: Iterable[str]) -> None:
        """Cancel these requests."""
        self._inbox.put([Cancel(id) for id in ids])

    def stop(self, id: str, keep: int) -> None:
        """End a request whose caller has found a stop in the text. keep: generated tokens."""
        self._inbox.put([Stop(id, keep)])

    def events(self, request: Request) -> Iterator[Event]:
        """Submit the request and return an iterator of its events up to its end. Leaving the
        iterator early cancels the request."""
        caller = QueueCaller()
        self.submit([request], caller)
        return self._listen(request.id, caller)

    def _listen(self, id: str, caller: QueueCaller) -> Iterator[Event]:
        finished = False
        try:
            while not finished:
                event = heard(caller.queue.get())
                finished = bool(event.finish)
                yield event
        finally:
            if not finished:
                self.cancel([id])

    async def stream(
        self, request: Request, ended: Callable[[], object] = lambda: None
    ) -> AsyncGenerator[Event]:
        """Yield the request's events, like `events` for an asyncio task. Cancelling the task
        cancels the request.

        ended: called in the engine's thread when the submitted request has ended, before its
        caller hears of the end, and even if the caller has left.
        """
        caller = LoopCaller(self._told.setdefault(asyncio.get_running_loop(), []), ended)
        self.submit([request], caller)
        finished = False
        try:
            while not finished:
                event = heard(await caller.queue.get())
                finished = bool(event.finish)
                yield event
        finally:
            if not finished:
                self.cancel([request.id])

    def retune(self, retune: Retune) -> None:
        """Change the strategy and the lanes. Settings.retuned must have accepted the change."""
        self._inbox.put([retune])

    def close(self) -> None:
        """Finish accepted requests, refuse later ones, and wait for the engine's thread to end. If
        the wait is interrupted, the requests are cancelled. In a forked process there is nothing to
        end."""
        if self.is_here:
            self._inbox.put([Close()])
            try:
                if not self.is_own_thread:
                    self._over.wait()
            except BaseException:  # the owner will close what the thread still uses
                _leave(self._process, self._inbox, self._callers, self._over)
                raise
            self._thread.join()  # raises in the engine's own thread

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._over.set()

    def _serve(self) -> None:
        try:
            while not self._engine.scheduler.finished:
                events = self._engine.step()
                scheduler = self._engine.scheduler
                if self._staged:
                    self._staged(scheduler.accounts.take())
                self._rows(*scheduler.ledger.take())
                scheduler.ledger.take_changes()  # only a server reports them
                self._callers.tell(events)
        except BaseException as error:  # the thread's edge: no caller may wait forever
            down = EngineDownError(f"the engine is down: {first_line(error)}")
            down.__cause__ = error
            self._callers.fail(down)
            raise
        finally:
            self._leaving.detach()
        self._callers.fail(EngineDownError("the engine is closed"))


def _leave(process: int, inbox: LiveInbox, callers: Callers, over: threading.Event) -> None:
    """Cancel what is open and end an engine: one that was never closed, as Python ends, since it
    would stop the thread somewhere inside torch, which aborts the process; or one whose close was
    interrupted. process: whose thread it is; in one that was forked from it nothing is to end."""
    if process == os.getpid() and not over.is_set():
        inbox.put([*[Cancel(id) for id in list(callers.open)], Close()])
        over.wait(LEAVING)
