"""Admission: which calls enter a model's lanes, and how calls end. Runs on the loop's thread."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from headway.core.admission import full, late, until_drained
from headway.core.lane import Budget
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER
from headway.errors import EngineDownError, RefusedError
from headway.server.answering.call import Call, down
from headway.server.answering.refusal import Refusal
from headway.server.answering.routed import Routed
from headway.server.config.sections.prices import PriceSettings
from headway.server.engine.handle import Backend, EngineHandle, EngineState, Rows
from headway.server.intake.keys import KeyRing
from headway.server.intake.leaving import Leaving, begun
from headway.server.intake.limits.spend import SpendControl
from headway.server.intake.retry_schedule import RetrySchedule
from headway.server.intake.supersede import Cancellable, Supersession
from headway.server.intake.watcher import Watcher
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.retry_after import SOON, jittered


class Admission:
    """Admits calls to one engine or refuses them, and hands each call the ledger rows of its
    requests.

    supersession, keys: shared by all models. watchers: told of calls. listeners: called with the
    ledger rows once the calls have them; each row carries its own request's budget.
    """

    def __init__(
        self,
        engine: EngineHandle,
        keys: KeyRing,
        now: Callable[[], int],
        supersession: Supersession,
        spend: SpendControl | None = None,
    ) -> None:
        self.engine, self._keys, self._now = engine, keys, now
        self.spend = spend or SpendControl((), PriceSettings(), lambda: 0)
        self.listeners: list[Rows] = []
        self.watchers: list[Watcher] = []
        self._retries = RetrySchedule()
        # Called with each call that is over and has all its rows, and with the tokens of those of
        # its prompts that the engine began.
        self.settled: Callable[[Call, int], object] = lambda call, begun: None
        self._calls: dict[str, Call] = {}  # by request id
        self._leaving = Leaving()
        self._supersession = supersession
        self.preparing: Counter[str] = Counter()  # requests being tokenized, by lane
        self._clients: dict[Cancellable, Routed] = {}  # those whose calls are being prepared
        engine.rows = self.rows

    @property
    def open(self) -> int:
        """How many engine requests are being answered."""
        return len(self._calls)

    def engine_ready(self) -> None:
        """An engine is ready, so an earlier engine sends no more rows."""
        self._give_up_rows()
        for each in self.watchers:
            each.ready()

    def engine_lost(self) -> None:
        """The engine has failed for good. No more rows come."""
        self._give_up_rows()
        for each in self.watchers:
            each.lost()

    def _give_up_rows(self) -> None:
        for call in self._leaving.give_up():
            self._settle(call)

    def refuse_early(self, refusal: Refusal) -> None:
        """Tell the watchers of a request that never became a call."""
        for each in self.watchers:
            each.refused_early(refusal)

    def check_open(self) -> None:
        """Raises Problem unless the engine takes requests. Called before any work on a call."""
        if self.engine.state is not EngineState.READY:
            raise not_open(self.engine)

    @contextmanager
    def reserving(self, routed: Routed, client: Cancellable) -> Iterator[None]:
        """A context for preparing a call: its requests hold places in the lane. client: ended if a
        later call supersedes this one.

        A call that replaces another call needs no free place. Raises Problem.
        """
        lane, count = routed.lane, routed.count
        most = self.engine.load.lanes[lane].lane.max_waiting
        if 1 < count > most:  # as in core.admission.never
            what = f"{count} requests come together, and no more than {most}"
            raise wrong(f"{what} may ever wait in {lane!r}")
        self._supersession.begin_preparing(routed, client)
        try:
            if not self._supersession.replaces(routed):
                self.check_room(lane, routed.deadlines.start_by, count, routed.tenant.key)
            self.preparing[lane] += count
            self._clients[client] = routed
            try:
                yield
            finally:
                self.preparing[lane] -= count
                del self._clients[client]
        finally:
            self._supersession.end_preparing(routed, client)

    def check_room(self, lane: str, start_by: int, count: int, key: str = "") -> None:
        """Raises Problem if the lane is full or the request would start too late.

        Called before prompts are tokenized, so that refusals stay cheap in overload. Requests being
        tokenized count as waiting; their token counts are not known yet.
        """
        load, now = self.engine.load, self._now()
        line = load.lanes[lane]
        if coming := self.preparing[lane]:
            line = line._replace(waiting=line.waiting + coming)
            load = load._replace(lanes={**load.lanes, lane: line})
        if refused := full(line, load, now) or late(line, load, now, start_by):
            raise self._full((lane, key), refused.reason, refused.retry_at, count)

    def enter(self, call: Call) -> None:
        """Put all of a call's requests into its lane, or raise Problem and put none.

        The call that it supersedes ends in both cases, since its client no longer waits for it.
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
        left = self._supersession.end_superseded(call)
        routed, prompt = call.routed, call.tokens[0]
        self.spend.reserve(call.id, routed.tenant, routed.lane, (prompt, call.most - prompt))
        try:
            self._charge(call)
            call.entered_at = self._now()
            self.engine.submit(call.requests, call, left)
        except (RefusedError, EngineDownError) as error:
            self.spend.release(call.id, 0)
            self._keys.give_back(routed.tenant, call.charged, self._now())
            raise self._refused(call, error) from error
        except Problem:  # the key's rate limit
            self.spend.release(call.id, 0)
            raise
        call.told = self.spend.headers(routed.tenant, routed.lane)
        self._calls.update(dict.fromkeys(call.choices, call))
        self._supersession.enter(call)

    def _charge(self, call: Call) -> None:
        """Charge the key the most tokens the call may use. `leave` gives back what was not
        generated, and `_settle` the prompts that were never begun.

        A call without max_tokens may use the whole context. Up front it is charged at most the
        larger of a minute's worth and its prompts plus one token per choice; when it leaves, what
        it used beyond that.
        """
        tenant, call.charged = call.routed.tenant, call.most
        if call.request.options.max_tokens is None:  # it may use the whole context
            prompt, count = call.tokens[0], len(call.choices)
            call.charged = max(prompt + count, min(call.most, self._keys.a_minute(tenant)))
        if wait := self._keys.take(tenant, call.charged, self._now()):
            if wait == NEVER:
                most = self._keys.a_minute(tenant)
                what = f"this key has {most} tokens a minute, and {call.charged} were asked for"
                raise wrong(f"{what}: ask for fewer with max_tokens")
            what = f"this key's limit per minute is reached: {call.charged} tokens were asked for"
            raise Problem(429, what, code="rate_limit_exceeded", retry=jittered(wait / 1e9))

    def _refused(self, call: Call, refused: RefusedError | EngineDownError) -> Problem:
        if isinstance(refused, EngineDownError):
            return down(refused)
        if refused.retry_at == NEVER:
            return wrong(str(refused))
        who = call.routed.lane, call.routed.tenant.key
        return self._full(who, str(refused), refused.retry_at, len(call.choices))

    def _full(self, who: tuple[str, str], reason: str, drained: int, count: int) -> Problem:
        """The answer when a lane is full, with a time to retry. who: the lane, and the key."""
        (lane, key), now = who, self._now()
        each = max(0, drained - now) // max(1, self.engine.load.lanes[lane].waiting)
        retry = self._retries.next(lane, key, now, drained, each * count)
        return Problem(429, reason, code="lane_full", retry=retry)

    def cancel(self, tenant: str, id: str) -> int:
        """End the tenant's calls with this id, the answer's or the X-Request-Id. Returns how many.
        A call still in preparation is found only by its X-Request-Id."""

        def has(routed: Routed, *names: str) -> bool:
            return routed.tenant.name == tenant and id in names

        calls = dict.fromkeys(self._calls.values())
        mine: list[Cancellable] = [
            *(call for call in calls if has(call.routed, call.id, call.routed.request_id)),
            *(each for each, routed in self._clients.items() if has(routed, routed.request_id)),
        ]
        for each in mine:
            each.end(Problem(409, "the request was cancelled", code="cancelled", final=True))
        return len(mine)

    # -- what a running call asks for (a CallOwner)

    def refusal(self, call: Call, reason: str) -> Problem:
        routed, load = call.routed, self.engine.load
        drained = self._now() + until_drained(load.lanes[routed.lane], load)
        return self._full((routed.lane, routed.tenant.key), reason, drained, len(call.choices))

    def stop(self, id: str, keep: int) -> None:
        self.engine.stop(id, keep)

    def leave(self, call: Call, open: Iterable[str]) -> None:
        if left := list(open):
            self.engine.cancel(left)
        for each in self.watchers:
            each.left(call, left)
        for id in call.choices:
            self._calls.pop(id, None)
        self._supersession.leave(call)
        self._keys.give_back(call.routed.tenant, call.charged - sum(call.tokens), self._now())
        if not self._leaving.add(call, left):
            self._settle(call)

    def _settle(self, call: Call) -> None:
        """Give back what the key was charged for prompts that the engine never began."""
        used = begun(call)
        self._keys.give_back(call.routed.tenant, call.tokens[0] - used, self._now())
        self.settled(call, used)

    # -- the ledger

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        """Hand each row to its call, then all rows to the listeners."""
        tightened = []
        for row in requests:
            if call := self._calls.get(row.id):
                row = _judged(row, call.routed.deadlines.budget)
                call.rows[row.id] = row
            elif call := self._leaving.take(row):
                row = call.rows[row.id]
                if len(call.rows) == len(call.choices):
                    self._settle(call)
            tightened.append(row)
        for listener in self.listeners:
            listener(steps, tightened)


def not_open(backend: Backend) -> Problem:
    """The answer while the backend takes no requests."""
    match backend.state:
        case EngineState.LOADING:
            return loading(backend.down)
        case EngineState.DRAINING:
            return draining()
        case _:
            return down(EngineDownError(backend.down or "the engine is down"))


def draining() -> Problem:
    """The answer while the server drains."""
    message = "the server is shutting down and takes no more"
    return Problem(503, message, code="draining", retry=jittered(SOON))


def loading(fault: str = "") -> Problem:
    """The answer while the model loads. fault: why the previous engine failed, if one did."""
    again = f"the engine is being started again, because it failed: {fault}"
    message = again if fault else "the model is loading"
    return Problem(503, message, code="loading", retry=jittered(SOON))


def _judged(row: RequestRow, budget: Budget) -> RequestRow:
    return row if row.budget == budget else replace(row, budget=budget)
