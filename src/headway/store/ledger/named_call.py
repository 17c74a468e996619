"""Which call counts of those with the same X-Request-Id (latest)."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple


class NamedCall(NamedTuple):
    """A call that was sent with an X-Request-Id, or an attempt of a route that was."""

    call: str  # of an attempt: the request's id, a dot and the attempt's number
    arrived: int  # Unix nanoseconds
    sent: bool  # its answer was sent, and not another attempt's


def named(row: Mapping[str, Any]) -> NamedCall:
    """The call of a row of ledger_requests. Nobody gets the answer of an attempt that is lost: none
    of its time is spent on sending."""
    return NamedCall(row["call"], row["arrived"], '"sending"' in row["stages"])


def latest(calls: Collection[NamedCall], id: str) -> NamedCall:
    """The one with this id; else the latest. Of a route's attempts the one counts whose answer was
    sent. calls: one or more with this id or X-Request-Id."""
    own = [each for each in calls if each.call == id]
    last = max(own or calls, key=lambda each: each.arrived)
    if own:
        return last
    attempts = [each for each in calls if request_of(each.call) == request_of(last.call)]
    return max(attempts, key=lambda each: (each.sent, each.arrived))


def request_of(call: str) -> str:
    """The id of the request that a call is an attempt of; else its own."""
    return call.partition(".")[0]
