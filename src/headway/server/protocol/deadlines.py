"""Deadlines: a request's lane budget, which headers may tighten but never loosen."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.server.protocol.problem import Problem, wrong

TTFT, TPOT, TIMEOUT = "x-slo-ttft-ms", "x-slo-tpot-ms", "x-headway-timeout-ms"
DUE = "x-headway-due-ms"
SUPERSEDE = "x-headway-supersede"
MOST_MS = 10**9  # eleven days


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The limits of one request; times in nanoseconds of the machine's clock."""

    budget: Budget
    start_by: int  # the request is dropped if it has not started by then
    end_by: int  # the request is dropped if it has not ended by then
    due: int = NEVER  # when it should have ended: it orders the request, but never drops it
    own_start: bool = False  # the client set start_by, earlier than the lane's budget does
    own_end: bool = False  # the client set end_by, earlier than the lane's budget does

    @property
    def own(self) -> tuple[bool, bool]:
        """Whether the client set the deadline that the request may miss: before it has started, and
        after."""
        return self.own_end if self.end_by <= self.start_by else self.own_start, self.own_end


def deadlines_of(lane: Budget, headers: Mapping[str, str], arrived: int) -> Deadlines:
    """The lane's budget, tightened by headers, and the resulting times. Raises Problem.

    A header that asks for more than the lane gives changes nothing. A request is dropped if it has
    not started within the lane's `queue` or x-slo-ttft-ms: its client has no use for a later
    answer. It must end within the lane's `e2e` and x-headway-timeout-ms. It should end within
    x-headway-due-ms, but is answered later too.
    """
    ttft, tpot = _limit(headers, TTFT), _limit(headers, TPOT)
    budget = replace(
        lane,
        ttft=min(lane.ttft, ttft),
        tpot=min(lane.tpot, tpot),
        e2e=min(lane.e2e, timeout(headers)),
        queue=min(lane.queue, ttft),
    )
    end_by = NEVER if budget.e2e == NEVER else arrived + budget.e2e
    due = _limit(headers, DUE)
    due = NEVER if due == NEVER else arrived + due
    own = budget.queue < lane.queue, budget.e2e < lane.e2e
    return Deadlines(budget, budget.start_by(arrived), end_by, due, *own)


def timeout(headers: Mapping[str, str]) -> int:
    """Nanoseconds from arrival that the client waits, from its header. Raises Problem."""
    return _limit(headers, TIMEOUT)


def result_time(headers: Mapping[str, str], streams: bool) -> int:
    """Nanoseconds from arrival that a function's client waits for a result, from its headers.

    A result is an item's first token and its last one. It is sent if its call has begun by then. A
    stream goes on after its first piece, so x-slo-ttft-ms changes nothing for it. Raises Problem,
    also for x-headway-supersede, which functions do not support.
    """
    if SUPERSEDE in headers:
        raise wrong(f"a function's call cannot have {SUPERSEDE}", SUPERSEDE, "not_supported")
    first, last = _limit(headers, TTFT), timeout(headers)
    return last if streams else min(first, last)


def late(held: Deadlines, arrived: int) -> Problem:
    """The answer when start_by or end_by passed before the engine had the request."""
    ends = held.end_by <= held.start_by
    limit = (held.end_by if ends else held.start_by) - arrived
    message = f"not {'ended' if ends else 'started'} within {limit / 1e9:g} s of its arrival"
    return Problem(408, message, code="deadline_exceeded", final=True)


def _limit(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name)
    if text is None:
        return NEVER
    try:
        value = 0.0 if "_" in text else float(text)  # Python reads 1_000 as 1000
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST_MS:
        raise wrong(f"{name} must be milliseconds above 0, not {text[:40]!r}", name)
    return int(value * 1e6)
