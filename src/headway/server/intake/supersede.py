"""Which of a tenant's calls with the same X-Headway-Supersede came last, and where that one is."""

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple, Protocol

from headway.core.request import Request
from headway.server.answering.call import Call
from headway.server.answering.routed import Routed
from headway.server.protocol.problem import Problem

MOST = 4_096  # keys whose last arrival is remembered


class Key(NamedTuple):
    tenant: str
    said: bytes  # a digest: what is remembered is short, however long the header was


class Cancellable(Protocol):
    def end(self, problem: Problem) -> None: ...


class Supersession:
    """Per key one call is inside, in its lane, and one other is coming, being prepared. A later
    arrival ends who is coming at once, and who is inside when it enters itself.
    """

    def __init__(self) -> None:
        self._arrived: OrderedDict[Key, int] = OrderedDict()  # nanoseconds; least lately used first
        self._coming: dict[Key, Cancellable] = {}
        self._inside: dict[Key, Call] = {}

    def come(self, routed: Routed, call: Cancellable) -> None:
        """It begins to be prepared. Raises Problem if a later one has come."""
        if key := _key(routed):
            arrived = routed.arrival.at
            self._check(key, arrived)
            self._arrived[key] = arrived
            self._arrived.move_to_end(key)
            if len(self._arrived) > MOST:
                self._arrived.popitem(last=False)
            if other := self._coming.get(key):
                other.end(_superseded())
            self._coming[key] = call

    def came(self, routed: Routed, call: Cancellable) -> None:
        """It is prepared, or has given up."""
        if (key := _key(routed)) and self._coming.get(key) is call:
            del self._coming[key]

    def replaces(self, routed: Routed) -> bool:
        """Whether it will take the place of one that is in the same lane."""
        key = _key(routed)
        other = self._inside.get(key) if key else None
        return other is not None and other.routed.lane == routed.lane

    def clear(self, call: Call) -> list[Request]:
        """Before it enters: who came before it leaves, of which what had no token yet is returned.
        Raises Problem if a later one has come."""
        if key := _key(call.routed):
            self._check(key, call.arrived)
            if other := self._inside.get(key):
                left = other.unheard
                other.end(_superseded())
                return left
        return []

    def enter(self, call: Call) -> None:
        if key := _key(call.routed):
            self._inside[key] = call

    def leave(self, call: Call) -> None:
        if (key := _key(call.routed)) and self._inside.get(key) is call:
            del self._inside[key]

    def _check(self, key: Key, arrived: int) -> None:
        if arrived < self._arrived.get(key, 0):
            raise _superseded()


def _key(routed: Routed) -> Key | None:
    """None: it supersedes nothing."""
    if not routed.supersedes:
        return None
    said = blake2b(routed.supersedes.encode(), digest_size=16)
    return Key(routed.tenant.name, said.digest())


def _superseded() -> Problem:
    said = "a later request with the same X-Headway-Supersede has taken its place"
    return Problem(409, said, code="superseded", final=True)
