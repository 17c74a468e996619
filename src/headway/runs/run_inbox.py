"""The inbox of a run: requests at their scheduled arrivals, and who is turned away before them."""

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
    """Requests at their scheduled arrivals; those unfinished at the limit are cancelled.

    Requests arrive when the trace says, whatever the engine is doing (open loop), so that a slow
    engine does not delay them and shortens no wait.
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
    """As the server's door: whoever would probably wait in vain is refused before coming in.

    Whoever comes in ends the one before it with the same key, whatever its lane. keys: by id.
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
        self._entered: dict[Hashable, str] = {}  # the id that came in last, by key

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
        """A Cancel of the one before it with the same key, if any; that may have ended already."""
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
    """The request with the limits after which the engine drops it."""
    arrived = request.arrived
    return replace(request, start_by=budget.start_by(arrived), end_by=budget.done_by(arrived))
