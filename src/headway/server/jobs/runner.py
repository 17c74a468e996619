"""Runner: takes items from the store, answers them in the jobs' lane, and stores the results."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from starlette.types import ASGIApp

from headway.server import clock
from headway.server.config.durations import SECOND
from headway.server.config.tenant import Tenant
from headway.server.jobs.in_process import SPENT, Answer, post
from headway.server.jobs.metrics import JobMetrics
from headway.server.jobs.store import JobStore
from headway.server.observe.logs import Log
from headway.server.protocol.deadlines import DUE, MOST_MS
from headway.server.protocol.problem import Problem, wrong
from headway.store.database import StoreError
from headway.store.items.items import GivenBack, Item, Result
from headway.store.items.taking import Who
from headway.store.lines import answered_line, unanswered_line

LOOK = 1.0  # seconds between two queries for items, if no new item wakes the runner
PAUSE = 1.0  # seconds before a store that failed is used again
ATTEMPTS = 3  # at an item on which the engine fails
ENGINE_FAULTS = frozenset({"engine_error", "engine_down"})
MOST_RESTING = 1_000  # jobs
NO_KEY = 60 * SECOND  # before items of a key that this server does not have are tried again
RATE, CONCURRENCY = "rate_limit_exceeded", "concurrency_limit_exceeded"  # the limits of keys
Rests = TypeVar("Rests", Who, str)


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """How items are answered."""

    lane: str
    at_once: int
    tenant_of: Callable[[str, str], Tenant | None]  # by a key's name and its tenant's
    rooms: Callable[[], Mapping[Who, int]] = dict  # requests that limited keys may still begin


class Runner:
    """Keeps up to `at_once` items in the application.

    The transaction that stores results also takes new items, so memory stays bounded while the
    store is slow or away. An item that is refused temporarily is given back. For the time that the
    refusal names, its key rests if a limit of the key was reached; its job, if one of several
    models refused it; otherwise all items. A key that has as many requests at once as it may also
    goes on when one of its own items ends.
    """

    def __init__(
        self,
        app: ASGIApp,
        store: JobStore,
        settings: RunnerSettings,
        metrics: JobMetrics,
        log: Log,
    ) -> None:
        self._app, self._store, self._settings = app, store, settings
        self._metrics, self._log = metrics, log
        self.running: dict[asyncio.Task[None], Item] = {}
        self._results: list[Result] = []
        self._back: list[GivenBack] = []
        self._resting: dict[Who, int] = {}  # by key: the end of its rest, in nanoseconds
        self._full: dict[Who, int] = {}  # likewise, of keys that had as many requests as they may
        self._resting_jobs: dict[str, int] = {}  # likewise, by job
        self._everybody_rests = 0  # the end of the rest of all items, in nanoseconds
        self._is_unsure = False  # whether the store may have assigned items without reporting them
        self._work = asyncio.Event()

    def wake(self) -> None:
        """Ask the store at once: there may be items to take."""
        self._work.set()

    async def run(self) -> None:
        """Answer items until cancelled. Then store the results, and give back running items."""
        try:
            while True:
                self._work.clear()
                try:
                    if self._is_unsure:
                        await self._free_lost()
                    await self._exchange()
                except StoreError as error:
                    self._is_unsure = True
                    self._store.log_outage(self._log, error)
                    await asyncio.sleep(PAUSE)
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK):
                        await self._work.wait()
        finally:
            await self._leave()

    def doubt(self) -> None:
        """Give back, before anything is taken, what the store may have assigned to this server
        without reporting it."""
        self._is_unsure = True

    def cancel(self, jobs: set[str]) -> None:
        """Cancel the running items of these jobs, whose results are no longer wanted."""
        for task, item in self.running.items():
            if item.job in jobs:
                task.cancel()

    async def _exchange(self) -> None:
        now = clock.now()
        results, self._results = self._results, []
        back, self._back = self._back, []
        room = self._settings.at_once - len(self.running) if now >= self._everybody_rests else 0
        resting = _after(self._resting, now) | _after(self._full, now)
        rooms = {**self._settings.rooms(), **dict.fromkeys(resting, 0)}
        jobs = _after(self._resting_jobs, now)
        exchange = self._store.items.exchange
        try:
            taken = await self._store.ask(exchange, results, back, room, rooms, jobs)
        except BaseException:  # nothing was stored, or storing it again does no harm
            self._results, self._back = results + self._results, back + self._back
            raise
        self._count(results, back)
        for item in taken:
            task = asyncio.create_task(self._answer(item))
            self.running[task] = item
            task.add_done_callback(self._ended)
        self._metrics.running = len(self.running)
        await asyncio.sleep(0)  # they count against their keys before `rooms` is asked again

    async def _free_lost(self) -> None:
        items = [*self.running.values(), *[each.item for each in self._back]]
        keys = {(each.job, each.number) for each in items}
        keys |= {(each.job, each.number) for each in self._results}
        self._is_unsure = False  # an error, or a doubt meanwhile, sets it again
        await self._store.ask(self._store.items.free_lost, keys)

    def _count(self, results: Sequence[Result], back: Sequence[GivenBack]) -> None:
        good = sum(200 <= each.status_code < 300 for each in results)
        self._metrics.items["answered"] += good
        self._metrics.items["failed"] += len(results) - good
        self._metrics.items["again"] += len(back)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self.running[task]
        self._work.set()

    async def _answer(self, item: Item) -> None:
        tenant = self._settings.tenant_of(item.key, item.tenant)
        if tenant is None and not self._store.is_alone:  # another server may have the key
            self._back.append(GivenBack(item))
            self._resting[item.who] = clock.now() + NO_KEY
            return
        if tenant is None:
            why = f"the server has no key {item.key!r} of {item.tenant!r} any more"
            self._results.append(failed(item, Problem(401, why, code="invalid_api_key")))
            return
        headers = {
            "content-type": item.content_type,
            "accept": item.accept,
            "x-headway-lane": self._settings.lane,
            "x-request-id": f"{item.job}-{item.number}",
            DUE: str(min(MOST_MS, max(1, round(1_000 * (item.expires_at - self._store.unix()))))),
            **item.headers,
        }
        try:
            answer = await post(self._app, item.endpoint, item.body, headers, tenant)
        except Exception as error:  # the task's edge: the application has failed
            self._log.exception("fault", job=item.job, item=item.number)
            why = f"the server has failed: {type(error).__name__}"
            self._results.append(failed(item, Problem(500, why, code="fault")))
            return
        if wait := answer.retry_after:
            self._rest(item, answer, wait)
            return
        self._full.pop(item.who, None)
        if answer.code in ENGINE_FAULTS and item.attempts + 1 < ATTEMPTS:
            self._back.append(GivenBack(item, counts=True))
        else:
            self._results.append(result_of(item, answer))

    def _rest(self, item: Item, answer: Answer, seconds: float) -> None:
        self._back.append(GivenBack(item))
        until = clock.now() + round(seconds * SECOND)
        if answer.code in (RATE, SPENT):
            self._resting[item.who] = until
        elif answer.code == CONCURRENCY:
            self._full[item.who] = until
        elif answer.model and len(self._resting_jobs) < MOST_RESTING:  # other models may be free
            self._resting_jobs[item.job] = until
        else:
            self._everybody_rests = until

    async def _leave(self) -> None:
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        try:
            await self._store.ask(self._store.items.exchange, self._results, [], 0)
            await self._store.ask(self._store.items.leave)
        except StoreError as error:  # the next start, or another server, frees this one's items
            self._log.error("jobs could not be given back", cause=str(error))


def _after(resting: dict[Rests, int], now: int) -> set[Rests]:
    """Those that still rest; the ended rests are removed."""
    for name in [name for name, until in resting.items() if until <= now]:
        del resting[name]
    return set(resting)


def result_of(item: Item, answer: Answer) -> Result:
    """An item's answer as the store keeps it."""
    output = answer.body
    if item.is_batch:
        if answer.content_type.startswith("text/event-stream"):  # not known when it was sent
            return failed(item, wrong("a batch has no streams", code="not_supported"))
        made = item.job, item.number, item.custom_id, answer.status
        output = answered_line(*made, answer.headers.get("x-request-id", ""), answer.body)
    about = item.job, item.number, answer.status, answer.content_type
    return Result(*about, output, *answer.tokens)


def failed(item: Item, problem: Problem) -> Result:
    """The result of an item that got no answer."""
    about = item.job, item.number, problem.status, "application/json"
    if item.is_batch:
        made = item.job, item.number, item.custom_id
        return Result(*about, unanswered_line(*made, problem.code, str(problem)))
    return Result(*about, problem.json)
