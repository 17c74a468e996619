"""Choose one call among those with the same X-Request-Id (latest)."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple


class NamedCall(NamedTuple):
    """A call sent with an X-Request-Id, or one attempt of a route's call sent with one."""

    call: str  # its id; for an attempt: the request's id, a dot and the attempt's number
    arrived: int  # Unix nanoseconds
    sent: bool  # its answer was sent, not that of another attempt


def named(row: Mapping[str, Any]) -> NamedCall:
    """The call of a row of ledger_requests. It counts as sent if its stages include `sending`: the
    answer of a lost attempt is never sent."""
    return NamedCall(row["call"], row["arrived"], '"sending"' in row["stages"])


def latest(calls: Collection[NamedCall], id: str) -> NamedCall:
    """The call with this id, else the call that arrived last. If that is a route's attempt, the
    attempt whose answer was sent. calls: one or more with this id or X-Request-Id."""
    own = [each for each in calls if each.call == id]
    last = max(own or calls, key=lambda each: each.arrived)
    if own:
        return last
    attempts = [each for each in calls if request_of(each.call) == request_of(last.call)]
    return max(attempts, key=lambda each: (each.sent, each.arrived))


def request_of(call: str) -> str:
    """The id of the request that the call is an attempt of, or the call's own id."""
    return call.partition(".")[0]
