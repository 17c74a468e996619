"""SimulatedTarget: a server that only spends time, for routes in virtual time (sim.loop)."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from headway.core.request import NEVER
from headway.errors import DeadlineError, EngineError, RefusedError, SettingError
from headway.routing.attempts import loop_now
from headway.routing.bill import Bill
from headway.routing.price import DEVICE_TIME, Price
from headway.routing.request import RouteAnswer, RouteRequest
from headway.routing.targets.target import Estimate, TargetLoad

Takes = Callable[[RouteRequest], int]  # nanoseconds in a slot
Outage = tuple[int, int]  # from when until when, in nanoseconds


def line(base: float, each: float, size: Callable[[RouteRequest], int]) -> Takes:
    """A time that is linear in size. base: seconds per request. each: seconds per unit of size."""
    return lambda request: round(1e9 * (base + each * size(request)))


def table(recorded: Sequence[int], at: Callable[[RouteRequest], int]) -> Takes:
    """Recorded nanoseconds. `at` gives the index that a request takes, modulo their number."""
    if not recorded:
        raise SettingError("a table of recorded times needs one at least")
    return lambda request: recorded[at(request) % len(recorded)]


class SimulatedTarget:
    """A server with slots. Each slot serves one request at a time, first come, first served.

    A request's device time is the time that it holds a slot, divided by the number of slots. So the
    device time of all requests is at most the time that passes. Nothing is random here. If `takes`
    and `answer` draw by the request alone, runs can be compared on the same draws.

    takes: nanoseconds in a slot. expected: the nanoseconds that `estimate` predicts with; None: as
    takes. answer: gives the answer. hangs: a request whose service overlaps one of these times
    is never answered. fails: every request asked in one of these times fails at once.
    """

    streams = False

    def __init__(
        self,
        name: str,
        takes: Takes,
        answer: Callable[[RouteRequest], RouteAnswer],
        *,
        expected: Takes | None = None,
        slots: int = 1,
        max_waiting: int = 1_000,
        price: Price = DEVICE_TIME,
        hangs: Sequence[Outage] = (),
        fails: Sequence[Outage] = (),
    ) -> None:
        self.name, self._takes, self._answer = name, takes, answer
        self._expected = expected or takes
        self._slots, self._max_waiting, self._price = slots, max_waiting, price
        self._hangs, self._fails = hangs, fails
        self._free: asyncio.Semaphore | None = None  # made in the event loop
        self._ahead = 0  # nanoseconds that all outstanding requests still have to hold slots
        self._outstanding = 0

    @property
    def load(self) -> TargetLoad:
        waits = self._ahead // self._slots if self._outstanding >= self._slots else 0
        return TargetLoad(self._outstanding, waits)

    def estimate(self, request: RouteRequest) -> Estimate:
        own, wait = self._expected(request), self.load.wait
        device = own // self._slots
        return Estimate(wait + own, wait + own, device, self._price.cost(device))

    async def ask(self, request: RouteRequest, bill: Bill) -> RouteAnswer:
        """Return the answer, after the wait for a slot and the time in it.

        Raises RefusedError when full, EngineError while it fails, and DeadlineError.
        """
        if _within(self._fails, loop_now()):
            raise EngineError(f"{self.name} is down")
        if self._outstanding >= self._slots + self._max_waiting:
            raise RefusedError(f"{self.name} is full", loop_now() + self.load.wait)
        self._free = self._free or asyncio.Semaphore(self._slots)
        takes, own = self._takes(request), self._expected(request)
        self._outstanding += 1
        self._ahead += own
        try:
            limit = None if request.deadline == NEVER else request.deadline / 1e9
            async with asyncio.timeout_at(limit), self._free:
                await self._serve(takes, bill)
        except TimeoutError:
            raise DeadlineError(f"{self.name} did not answer within the deadline") from None
        finally:
            self._outstanding -= 1
            self._ahead -= own
        return self._answer(request)

    async def _serve(self, takes: int, bill: Bill) -> None:
        """Hold a slot. The bill gets the time it was held, even if cancelled."""
        began = loop_now()
        try:
            lost = [begin for begin, end in self._hangs if begin < began + takes and began < end]
            if lost:
                await asyncio.get_running_loop().create_future()  # never answered
            await asyncio.sleep(takes / 1e9)
        finally:
            device = min(takes, loop_now() - began) // self._slots
            bill.close(device, self._price.cost(device))

    def stream(self, request: RouteRequest, bill: Bill) -> AsyncGenerator[Any]:
        raise SettingError(f"{self.name} is simulated: it gives whole answers")


def _within(outages: Sequence[Outage], now: int) -> bool:
    return any(begin <= now < end for begin, end in outages)
