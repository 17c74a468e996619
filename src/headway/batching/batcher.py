"""Batcher: turn calls with one item into calls with a list, by the engine's lanes and budgets."""

import functools
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any, Self

from headway.batching.calling import Function, calling, is_stream
from headway.batching.executor import END, FunctionExecutor
from headway.batching.item import (
    Deliveries,
    Failure,
    FutureSink,
    Item,
    LoopQueueSink,
    LoopSink,
    News,
    Offer,
    Piece,
    QueueSink,
    Sink,
    outcome_of,
    raised,
)
from headway.batching.line import Waiting
from headway.batching.listeners import Rows, Staged, logged
from headway.batching.mapping import mapped
from headway.batching.settings import BISECT, made_settings
from headway.core.batch import Event
from headway.core.ledger import RequestRow, StepRow
from headway.core.load import Load
from headway.core.request import NEVER, Finish, Request
from headway.core.sampling import UNASKED, Sampling
from headway.core.scheduler import Scheduler
from headway.errors import EngineDownError, SettingError
from headway.live.account import Account, settle
from headway.live.engine import LiveEngine
from headway.pipelines.graph import Chainable

FOREVER = 2**40  # pieces of a stream
STREAM = Sampling(stop_tokens=frozenset({END}))


class Batcher(Chainable):
    """Call a function of a list with the items that many callers submit.

    function: takes a list of items and returns one result per item, in the same order. It may also
    be a coroutine function, or a generator that yields lists of pieces. An exception in place of a
    result is the error of that item alone.
    rows: called after each call, in the engine's thread, with the ledger's rows of the calls and of
    the items that ended. staged: called before it with where the time of these items went
    (RequestStages). What either of them raises is logged.
    settings: fields of headway.batching.BatchSettings.

    A context manager. The function runs in its own thread, never twice at once.
    Raises SettingError.
    """

    def __init__(
        self,
        function: Function,
        *,
        rows: Rows = lambda steps, items: None,
        staged: Staged | None = None,
        **settings: Any,
    ) -> None:
        self.settings = made_settings(settings)
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self._items: dict[str, Item] = {}
        self._numbers, self._deliveries, self._waiting = count(1), Deliveries(), Waiting()
        self.streams = is_stream(function)  # whether it yields pieces
        self._lane = next(iter(self.settings.lanes))
        scheduler = Scheduler(self.settings.for_engine(streams=self.streams))
        self._executor = FunctionExecutor(
            calling(function, self.settings.processes),
            self._items,
            streams=self.streams,
            bisect=self.settings.on_error == BISECT,
            pad=self.settings.pad,
            begun=self._waiting.leave,
        )
        self._rows, staged = logged("rows", rows), staged and logged("staged", staged)
        self._engine = LiveEngine(scheduler, self._executor, rows=self._keep_rows, staged=staged)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def load(self) -> Load:
        """What waits in each lane now, and what ran when a call last began or ended."""
        return self._waiting.counted(self._engine.load)

    @property
    def is_here(self) -> bool:
        """Whether the batcher runs in this process, and not in one that this was forked from."""
        return self._engine.is_here

    @property
    def down(self) -> str:
        """Why the batcher takes no more items; empty while it takes them."""
        return self._engine.down

    def lane_of(self, lane: str) -> str:
        """The lane's name; the first lane if `lane` is empty. SettingError if it is unknown."""
        lane = lane or self._lane
        if lane not in self.settings.lanes:
            known = ", ".join(self.settings.lanes)
            raise SettingError(f"there is no lane {lane!r}; there are {known}")
        return lane

    def close(self) -> None:
        """Call the function with all waiting items, then end its thread and its processes. A
        second close does nothing, nor does one in a forked process, which has none of these."""
        self._check_kind(streams=self.streams)
        self._engine.close()
        if self._engine.is_here:
            self._executor.close()

    def submit(self, item: Any, *, lane: str = "", deadline: float = 0) -> "Future[Any]":
        """Submit an item and return a future of its result. Cancelling it cancels the item.

        lane: the lane's name; empty: the first lane. deadline: seconds after which an item that
        still waits is dropped (DeadlineError); 0: none.
        Raises RefusedError if the lane is full. Its retry_at says when to try again, on the clock
        of time.monotonic_ns().
        """
        self._check_kind(streams=False, waits=False)
        sink = FutureSink()
        id = self._begin(item, sink, lane, deadline)
        sink.future.add_done_callback(functools.partial(self._drop_cancelled, id))
        return sink.future

    def call(self, item: Any, *, lane: str = "", deadline: float = 0) -> Any:
        """Submit an item and return its result. Raises the item's error."""
        self._check_kind(streams=False)
        return self.submit(item, lane=lane, deadline=deadline).result()

    async def acall(
        self, item: Any, *, lane: str = "", deadline: float = 0, account: Account | None = None
    ) -> Any:
        """Like `call`, for asyncio. Cancelling the task cancels the item.

        account: told the item's ledger row, even if the task has been cancelled.
        """
        self._check_kind(streams=False)
        sink = LoopSink()
        id = self._begin(item, sink, lane, deadline, account)
        try:
            return await sink.future
        finally:
            self._drop(id)

    def map(self, items: Iterable[Any], *, lane: str = "") -> Iterator[Any]:
        """Yield the results of any number of items, in order. At most half of the lane's
        max_waiting are open at once. If other callers fill the lane, it waits for its own items.
        Raises RefusedError if none of them is open. Raises the first error and cancels the items
        behind it."""
        self._check_kind(streams=False)
        most = max(1, self.load.lanes[self.lane_of(lane)].lane.max_waiting // 2)
        return mapped(functools.partial(self.submit, lane=lane), items, most)

    def stream(self, item: Any, *, lane: str = "", deadline: float = 0) -> Iterator[Any]:
        """Yield the item's pieces. Leaving the iterator early cancels the item."""
        self._check_kind(streams=True)
        sink = QueueSink()
        id = self._begin(item, sink, lane, deadline)
        try:
            while isinstance(news := sink.queue.get(), Piece):
                yield news.value
            raised(news)
        finally:
            self._drop(id)

    async def astream(
        self, item: Any, *, lane: str = "", deadline: float = 0, account: Account | None = None
    ) -> AsyncGenerator[Any]:
        """Like `stream`, for asyncio. account: as in `acall`."""
        self._check_kind(streams=True)
        sink = LoopQueueSink()
        id = self._begin(item, sink, lane, deadline, account)
        try:
            while isinstance(news := await sink.queue.get(), Piece):
                yield news.value
            raised(news)
        finally:
            self._drop(id)

    def tell(self, news: Event | EngineDownError) -> None:
        """Take in, in the engine's thread, an item's event or the news that the engine is down."""
        if isinstance(news, EngineDownError):
            for id in list(self._items):
                self._end(id, Failure(news))
            return
        item = self._items[news.id]
        while item.pieces:
            self._deliveries.add(item.sink, Piece(item.pieces.popleft()))
        if news.finish:
            self._end(news.id, outcome_of(item, news))

    def flush(self) -> None:
        """Deliver the news of a call, once all of it has been told."""
        self._deliveries.send()

    def _end(self, id: str, news: News) -> None:
        if (item := self._items.pop(id, None)) is None:  # its `offer` has failed meanwhile
            return
        item.dropped = True
        self._waiting.leave([item])
        self._executor.ended(item)
        settle(item.account, item.row)
        self._deliveries.add(item.sink, news)

    def _keep_rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        """Keep the rows, in the engine's thread, before the items' callers are told."""
        for row in requests:
            item = self._items[row.id]
            item.row = row
            if row.is_whole or row.finish is Finish.ERROR:
                item.step = steps[-1] if steps else None
        self._rows(steps, requests)

    def _begin(
        self, value: Any, sink: Sink, lane: str, deadline: float, account: Account | None = None
    ) -> str:
        """Make the item wait in its lane. Returns its id."""
        if not 0 <= deadline < 1e18:  # as nanoseconds it must be a number
            raise SettingError(f"a deadline of {deadline} seconds cannot be kept")
        end_by = self._engine.clock.now() + int(deadline * 1e9) if deadline else NEVER
        return self.offer([Offer(value, sink, account, end_by=end_by)], lane)[0].id

    def offer(self, offers: Sequence[Offer], lane: str = "") -> list[Item]:
        """Submit all of these items or none. One call may take them all.

        Their sinks get the results. Raises RefusedError, PromptError, EngineDownError.
        """
        lane, now, cost_of = self.lane_of(lane), self._engine.clock.now(), self.settings.cost_of
        items = [Item(each[0], lane, each.sink, each.account, cost_of(each[0])) for each in offers]
        self._waiting.enter(items, self._engine.load, now)
        try:
            requests = [self._request(*each, now) for each in zip(items, offers, strict=True)]
            for item in items:
                if item.account:
                    item.account.begun()
                self._items[item.id] = item
            self._engine.offer(requests, self)
        except BaseException:
            self._waiting.leave(items)
            for item in items:
                if self._items.pop(item.id, None):  # else `tell` has ended it meanwhile
                    settle(item.account, None)
            raise
        return items

    def drop(self, items: Iterable[Item]) -> None:
        """Drop these items: their results are not wanted any more."""
        for item in items:
            self._drop(item.id)

    def _request(self, item: Item, offer: Offer, now: int) -> Request:
        number, cost = next(self._numbers), item.cost
        item.id = str(number)
        return Request(
            item.id,
            range(number, number + cost) if cost > 1 else (number,),
            FOREVER if self.streams else 0,
            now,
            item.lane,
            STREAM if self.streams else UNASKED,
            start_by=self._engine.load.lanes[item.lane].lane.budget.start_by(now),
            end_by=offer.end_by,
            due=offer.due,
            planned=offer.planned,
        )

    def check_thread(self) -> None:
        """Raise SettingError in the thread of the function or the engine: nobody answers there."""
        if self._engine.is_own_thread or self._executor.is_own_thread:
            raise SettingError(f"{self.name} cannot wait for its own batcher: submit does not wait")

    def _check_kind(self, *, streams: bool, waits: bool = True) -> None:
        if waits:
            self.check_thread()
        if streams != self.streams:
            what = "yields pieces: use stream or astream" if self.streams else "yields no pieces"
            raise SettingError(f"{self.name} {what}")

    def _drop_cancelled(self, id: str, future: "Future[Any]") -> None:
        if future.cancelled():
            self._drop(id)

    def _drop(self, id: str) -> None:
        """Drop the item with this id. Does nothing if it has ended."""
        if item := self._items.get(id):
            item.dropped = True
            self._waiting.leave([item])
            self._engine.cancel([id])
