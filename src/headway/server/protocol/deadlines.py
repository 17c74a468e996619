"""A lane's budget as one request has it: headers may tighten it, never loosen it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.server.protocol.problem import Problem, wrong

TTFT, TPOT, TIMEOUT = "x-slo-ttft-ms", "x-slo-tpot-ms", "x-headway-timeout-ms"
MOST_MS = 10**9  # eleven days


@dataclass(frozen=True, slots=True)
class Deadlines:
    """What holds for one request; nanoseconds of the machine's clock."""

    budget: Budget
    start_by: int  # not begun by then: dropped
    end_by: int  # not ended by then: dropped


def deadlines_of(lane: Budget, headers: Mapping[str, str], arrived: int) -> Deadlines:
    """A header that asks for more than the lane gives changes nothing. Raises Problem.

    A client that says x-slo-ttft-ms has no use for an answer that begins later: it is dropped
    when it has not begun by then, as after the lane's own `queue`. The end is the lane's `e2e`,
    or x-headway-timeout-ms.
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
    return Deadlines(budget, budget.start_by(arrived), end_by)


def timeout(headers: Mapping[str, str]) -> int:
    """Nanoseconds that the client itself waits, from a request's arrival. Raises Problem."""
    return _limit(headers, TIMEOUT)


def late(held: Deadlines, arrived: int) -> Problem:
    """One of the two has passed before the engine could know of it."""
    ends = held.end_by <= held.start_by
    limit = (held.end_by if ends else held.start_by) - arrived
    said = f"not {'ended' if ends else 'started'} within {limit / 1e9:g} s of its arrival"
    return Problem(408, said, code="deadline_exceeded", final=True)


def _limit(headers: Mapping[str, str], name: str) -> int:
    said = headers.get(name)
    if said is None:
        return NEVER
    try:
        value = float(said)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST_MS:
        raise wrong(f"{name} must be milliseconds above 0, not {said[:40]!r}", name)
    return int(value * 1e6)
