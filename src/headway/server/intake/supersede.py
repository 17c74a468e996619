"""Supersession: of a tenant's calls with one X-Headway-Supersede, only the latest is answered."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import NamedTuple, Protocol

from headway.core.request import Request
from headway.server.answering.call import Call
from headway.server.answering.routed import Routed
from headway.server.protocol.problem import Problem

MOST = 4_096  # keys whose last arrival is remembered


class Key(NamedTuple):
    """Calls with the same key supersede each other: a tenant and the header value it sent."""

    tenant: str
    digest: bytes  # a digest, so that a long header takes no more memory


class Cancellable(Protocol):
    """A call, or a client whose call is being prepared."""

    def end(self, problem: Problem) -> None:
        """End the call with this problem as its answer."""
        ...


class Supersession:
    """Keeps at most one call per key in its lane, and at most one more in preparation.

    A later arrival ends the call in preparation at once. It ends the call in the lane only when it
    enters the lane itself, because the later call may still be refused until then.
    """

    def __init__(self) -> None:
        self._arrived: OrderedDict[Key, int] = OrderedDict()  # nanoseconds; least recent first
        self._preparing: dict[Key, Cancellable] = {}
        self._entered: dict[Key, Call] = {}

    def begin_preparing(self, routed: Routed, call: Cancellable) -> None:
        """Start preparing a call. Raises Problem if a later call has already arrived."""
        if key := _key(routed):
            arrived = routed.arrival.at
            self._check(key, arrived)
            self._arrived[key] = arrived
            self._arrived.move_to_end(key)
            if len(self._arrived) > MOST:
                self._arrived.popitem(last=False)
            if other := self._preparing.get(key):
                other.end(_superseded())
            self._preparing[key] = call

    def end_preparing(self, routed: Routed, call: Cancellable) -> None:
        """The call is prepared, or its preparation was given up."""
        if (key := _key(routed)) and self._preparing.get(key) is call:
            del self._preparing[key]

    @contextmanager
    def holding(self, routed: Routed, call: Cancellable) -> Iterator[None]:
        """A context while a route answers. The request at once ends the call it supersedes, in any
        lane, and may itself be superseded until the block exits. Raises Problem."""
        self.begin_preparing(routed, call)
        try:
            if (key := _key(routed)) and (other := self._entered.get(key)):
                other.end(_superseded())
            yield
        finally:
            self.end_preparing(routed, call)

    def replaces(self, routed: Routed) -> bool:
        """Whether the call will take the place of another call in the same model and lane."""
        key = _key(routed)
        other = self._entered.get(key) if key else None
        return other is not None and _same_line(other.routed, routed)

    def end_superseded(self, call: Call) -> list[Request]:
        """End the call that this call supersedes, just before this call enters its lane. Returns
        the superseded call's requests without a token, if both calls are for the same engine.
        Raises Problem if a later call has arrived."""
        if key := _key(call.routed):
            self._check(key, call.arrived)
            if other := self._entered.get(key):
                left = other.unheard
                other.end(_superseded())
                return left if other.routed.served == call.routed.served else []
        return []

    def enter(self, call: Call) -> None:
        """Record that this call is now in its lane."""
        if key := _key(call.routed):
            self._entered[key] = call

    def leave(self, call: Call) -> None:
        """Forget this call, unless a later call has taken its place."""
        if (key := _key(call.routed)) and self._entered.get(key) is call:
            del self._entered[key]

    def _check(self, key: Key, arrived: int) -> None:
        if arrived < self._arrived.get(key, 0):
            raise _superseded()


def _same_line(one: Routed, other: Routed) -> bool:
    return (one.served, one.lane) == (other.served, other.lane)


def _key(routed: Routed) -> Key | None:
    """None: the call supersedes nothing."""
    if not routed.supersedes:
        return None
    hashed = blake2b(routed.supersedes.encode(), digest_size=16)
    return Key(routed.tenant.name, hashed.digest())


def _superseded() -> Problem:
    message = "a later request with the same X-Headway-Supersede has taken its place"
    return Problem(409, message, code="superseded", final=True)
