"""BatcherTarget: a function batched in this process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from headway.batching.batcher import Batcher
from headway.batching.decorator import BatchedFunction
from headway.core.admission import wait
from headway.core.request import NEVER
from headway.errors import DeadlineError
from headway.routing.attempts import loop_now
from headway.routing.bill import Bill, EngineAccount
from headway.routing.price import DEVICE_TIME, Price
from headway.routing.request import RouteAnswer, RouteRequest
from headway.routing.targets.learned import Learned
from headway.routing.targets.target import UNKNOWN, Estimate, TargetLoad


class BatcherTarget:
    """Asks a Batcher, or the Batcher behind a function with @headway.batch. Device time is the
    item's share of its calls.

    lane: the lane of all items; None: the request's lane, which the batcher must have. An empty
    name is the batcher's first lane. A request's options do not apply to a function.
    """

    def __init__(
        self,
        batcher: Batcher | BatchedFunction,
        name: str,
        *,
        lane: str | None = None,
        price: Price = DEVICE_TIME,
    ) -> None:
        self._given = batcher
        self.name, self._lane, self._price = name, lane, price
        self.streams = self._batcher.streams
        self._outstanding = 0
        self._learned = Learned()

    @property
    def _batcher(self) -> Batcher:
        """The batcher. A decorated function starts another one after its `close`, or a fork."""
        given = self._given
        return given.batcher if isinstance(given, BatchedFunction) else given

    @property
    def load(self) -> TargetLoad:
        """The load as of the latest call, with the longest wait of all lanes."""
        load = self._batcher.load
        lines = load.lanes.values()
        waiting = sum([each.waiting for each in lines]) + load.running
        return TargetLoad(
            max(self._outstanding, waiting), max([wait(each, load) for each in lines])
        )

    def estimate(self, request: RouteRequest) -> Estimate:
        """The lane's wait plus a line through the recent answers over their items' cost. UNKNOWN if
        the batcher does not take the item or its lane."""
        batcher = self._batcher
        load = batcher.load
        try:
            lane = batcher.lane_of(self._lane_of(request))
            size = batcher.settings.cost_of(request.input)
        except Exception:  # of any kind, as `cost` is the user's: `ask` raises it
            return UNKNOWN
        return self._learned.estimate(size, wait(load.lanes[lane], load))

    def _lane_of(self, request: RouteRequest) -> str:
        return request.lane if self._lane is None else self._lane

    async def ask(self, request: RouteRequest, bill: Bill) -> RouteAnswer:
        """Return the function's result as an answer. Raises what Batcher.acall raises, and also
        DeadlineError for an item whose call is running."""
        seconds, account = _seconds(request), EngineAccount(bill, self._price)
        began = loop_now()
        self._outstanding += 1
        try:
            async with asyncio.timeout(seconds or None) as limit:
                value = await self._batcher.acall(
                    request.input, lane=self._lane_of(request), deadline=seconds, account=account
                )
        except TimeoutError as late:
            if isinstance(late, DeadlineError) or not limit.expired():
                raise  # a TimeoutError before the limit is the function's own
            raise DeadlineError(f"{self.name} was still being called at the deadline") from None
        finally:
            self._outstanding -= 1
        assert bill.is_closed, "an account is told before the caller"
        size = self._batcher.settings.cost_of(request.input)
        self._learned.see(size, loop_now() - began, bill.nanoseconds, bill.cost)
        return RouteAnswer(value)

    async def stream(self, request: RouteRequest, bill: Bill) -> AsyncGenerator[Any]:
        """Yield the item's pieces. Raises what Batcher.astream raises."""
        lane, account = self._lane_of(request), EngineAccount(bill, self._price)
        pieces = self._batcher.astream(
            request.input, lane=lane, deadline=_seconds(request), account=account
        )
        self._outstanding += 1
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        finally:
            self._outstanding -= 1


def _seconds(request: RouteRequest) -> float:
    """Seconds until the deadline; 0: no deadline. Raises DeadlineError once it has passed."""
    if request.deadline == NEVER:
        return 0.0
    left = request.deadline - loop_now()
    if left <= 0:
        raise DeadlineError("the deadline was over before the item was submitted")
    return left / 1e9
