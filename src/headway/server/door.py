"""The door: who may come in, in which lane, and who must leave. On the event loop's thread."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from headway.core.admission import full, late
from headway.core.lane import Budget
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER
from headway.errors import EngineDownError, RefusedError
from headway.server.call import Call
from headway.server.engine import EngineSide, Rows, State
from headway.server.keys import KeyRing
from headway.server.protocol.problem import Problem, wrong
from headway.server.retry import Returns, jittered

SOON = 5.0  # seconds: when to ask again a server that loads its model or is being replaced
SUPERSEDED = "a later request with the same X-Headway-Supersede has taken its place"


class Watcher(Protocol):
    """Such as metrics and traces."""

    def entered(self, call: Call) -> None: ...

    def refused(self, call: Call, problem: Problem) -> None: ...

    def left(self, call: Call, open: Sequence[str]) -> None:
        """It is over; these of its requests have not ended by themselves."""
        ...


class Door:
    """listeners: who else hears the ledger's rows, such as metrics; with the budget as tightened
    for the request, where that was the case. watchers: who hears of calls.
    """

    def __init__(self, engine: EngineSide, keys: KeyRing, now: Callable[[], int]) -> None:
        self.engine, self._keys, self._now = engine, keys, now
        self.listeners: list[Rows] = []
        self.watchers: list[Watcher] = []
        self._returns = Returns()
        self._calls: dict[str, Call] = {}  # by each request's id
        self._latest: dict[tuple[str, str], Call] = {}  # by tenant and supersede key
        engine.rows = self.rows

    @property
    def open(self) -> int:
        """Requests that are being answered."""
        return len(self._calls)

    def check_open(self) -> None:
        """Before any work is done for a call. Raises Problem."""
        match self.engine.state:
            case State.LOADING:
                raise loading()
            case State.DRAINING:
                message = "the server is shutting down and takes no more"
                raise Problem(503, message, code="draining", retry=jittered(SOON))
            case State.DOWN:
                raise Problem(503, self.engine.down or "the engine is down", code="engine_down")
            case State.READY:
                pass

    def check_room(self, lane: str, start_by: int, count: int) -> None:
        """Before prompts are tokenized, so that refusing is cheap when most are refused. Raises
        Problem."""
        load, now = self.engine.load, self._now()
        line = load.lanes[lane]
        if refused := full(line, load, now) or late(line, load, now, start_by):
            raise self._full(lane, refused.reason, refused.retry_at, count)

    def enter(self, call: Call) -> None:
        """Into its lane. Raises Problem; then nothing of it has been taken.

        What it supersedes leaves even if there is no place for it: nobody waits for that any more.
        """
        try:
            self._enter(call)
        except Problem as problem:
            for each in self.watchers:
                each.refused(call, problem)
            raise
        for each in self.watchers:
            each.entered(call)

    def _enter(self, call: Call) -> None:
        self.check_open()
        if call.caller.supersedes and (other := self._latest.get(_key(call))):
            gone = Problem(409, SUPERSEDED, code="superseded", final=True)
            if other.arrived > call.arrived:  # a long prompt, tokenized while the later one came
                raise gone
            other.end(gone)
        self._charge(call)
        try:
            self.engine.submit(call.requests, call)
        except (RefusedError, EngineDownError) as error:
            self._keys.give_back(call.caller.tenant, call.most, self._now())
            raise self._refused(call, error) from error
        self._calls.update(dict.fromkeys(call.choices, call))
        if call.caller.supersedes:
            self._latest[_key(call)] = call

    def _charge(self, call: Call) -> None:
        """The most that it may come to; what is not used comes back when it leaves."""
        if wait := self._keys.take(call.caller.tenant, call.most, self._now()):
            what = f"this key's limit per minute is reached: {call.most} tokens were asked for"
            if wait == NEVER:
                raise wrong(f"{what}, more than a minute has; ask for fewer with max_tokens")
            raise Problem(429, what, code="rate_limit_exceeded", retry=jittered(wait / 1e9))

    def _refused(self, call: Call, refused: RefusedError | EngineDownError) -> Problem:
        if isinstance(refused, EngineDownError):
            return Problem(503, str(refused), code="engine_down")
        if refused.retry_at == NEVER:
            return wrong(str(refused))
        return self._full(call.caller.lane, str(refused), refused.retry_at, len(call.choices))

    def _full(self, lane: str, reason: str, drained: int, count: int) -> Problem:
        now = self._now()
        each = max(0, drained - now) // max(1, self.engine.load.lanes[lane].waiting)
        retry = self._returns.next(lane, now, drained, each * count)
        return Problem(429, reason, code="lane_full", retry=retry)

    def cancel(self, tenant: str, id: str) -> int:
        """The tenant's own calls of this id, ours or the X-Request-Id they came with; how many."""
        mine = [
            call
            for call in dict.fromkeys(self._calls.values())
            if call.caller.tenant.name == tenant and id in (call.id, call.caller.known_as)
        ]
        for call in mine:
            call.end(Problem(409, "the request was cancelled", code="cancelled", final=True))
        return len(mine)

    # -- a call's Ways

    def stop(self, id: str, keep: int) -> None:
        self.engine.stop(id, keep)

    def leave(self, call: Call, open: Iterable[str]) -> None:
        if left := list(open):
            self.engine.cancel(left)
        for each in self.watchers:
            each.left(call, left)
        for id in call.choices:
            self._calls.pop(id, None)
        if self._latest.get(_key(call)) is call:
            del self._latest[_key(call)]
        self._keys.give_back(call.caller.tenant, call.most - sum(call.tokens), self._now())

    # -- the ledger

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        """Each to its call, and then to whoever listens."""
        told = []
        for row in requests:
            if call := self._calls.get(row.id):
                row = _judged(row, call.caller.budget)
                call.rows[row.id] = row
            told.append(row)
        for listener in self.listeners:
            listener(steps, told)


def loading() -> Problem:
    return Problem(503, "the model is loading", code="loading", retry=jittered(SOON))


def _judged(row: RequestRow, budget: Budget) -> RequestRow:
    return row if row.budget == budget else replace(row, budget=budget)


def _key(call: Call) -> tuple[str, str]:
    """Among which a call is the latest."""
    return call.caller.tenant.name, call.caller.supersedes
