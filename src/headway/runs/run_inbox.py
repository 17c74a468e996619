"""The inboxes of a run: requests at their scheduled arrivals, with or without refusals."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from headway.core.admission import full, late
from headway.core.commands import Add, Cancel, Command, Refuse
from headway.core.lane import Budget
from headway.core.request import NEVER, Request
from headway.core.scheduler import Scheduler
from headway.runs.testbed import Clock
from headway.sim.inbox import TraceInbox, arrivals


class BoundedInbox(TraceInbox):
    """Requests at their scheduled arrivals. At the limit, unfinished requests are cancelled.

    Requests arrive when the trace says, whatever the engine is doing (open loop). So a slow engine
    delays no arrival, and does not make waits look shorter.
    """

    def __init__(self, requests: Iterable[Request], limit: int, clock: Clock) -> None:
        requests = tuple(requests)
        super().__init__(arrivals(requests), clock)
        self.limit = limit
        self._cancels: list[Command] = [Cancel(request.id) for request in requests]

    def poll(self) -> list[Command]:
        due = super().poll()
        if self.clock.now() >= self.limit:
            due += self._cancels
            self._cancels = []
        return due

    @property
    def next_at(self) -> int:
        return min(super().next_at, self.limit) if self._cancels else super().next_at


class EnforcingInbox(BoundedInbox):
    """An inbox that acts as the server's door. It refuses a request with a start limit if the lane
    is full, or if the request would probably start too late.

    A request that is let in cancels the one before it with the same key, in any lane. keys: by id.
    """

    def __init__(
        self,
        requests: Iterable[Request],
        limit: int,
        clock: Clock,
        scheduler: Scheduler,
        keys: Mapping[str, Hashable],
    ) -> None:
        super().__init__(requests, limit, clock)
        self.scheduler, self._keys = scheduler, keys
        self._entered: dict[Hashable, str] = {}  # the id let in last, by key

    def poll(self) -> list[Command]:
        found: list[Command] = []
        for each in super().poll():
            if not isinstance(each, Add):
                found.append(each)
            elif self._is_refused(each.request):
                found.append(Refuse(each.request))
            else:
                found += [*self._superseded(each.request), each]
        return found

    def _superseded(self, request: Request) -> list[Command]:
        """A Cancel for the previous request with this key, if any; it may have ended already."""
        if (key := self._keys.get(request.id)) is None:
            return []
        before, self._entered[key] = self._entered.get(key), request.id
        return [Cancel(before)] if before else []

    def _is_refused(self, request: Request) -> bool:
        if request.start_by == NEVER:
            return False
        now = self.clock.now()
        load = self.scheduler.load(now)
        line = load.lanes[request.lane]
        return bool(full(line, load, now) or late(line, load, now, request.start_by))


def with_deadlines(request: Request, budget: Budget) -> Request:
    """The request with the times after which the engine drops it, by the budget."""
    arrived = request.arrived
    return replace(request, start_by=budget.start_by(arrived), end_by=budget.done_by(arrived))
