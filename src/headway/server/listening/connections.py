"""The table of open connections: who may connect, who is answered, and who is closed for others."""

from collections import Counter
from enum import Enum
from ipaddress import ip_address, ip_network
from typing import Protocol

from headway.server.config.sections.connections import ConnectionSettings

SPARE = 64  # connections beyond those that are answered. One half is for /health and for refusals;
# the other is for evicted ones, which hold their descriptor until the loop's next turn
MOST_ACCEPTED = 64  # connections accepted in one turn of the loop
TURNS = 8  # of the loop, in which SPARE connections are accepted when each needs an eviction
GRACE = 0.025  # seconds in which a new connection is not evicted: its client has to run and send
RESERVED = 32  # descriptors that no connection gets: pipes, files, processes that try grammars


class Stage(Enum):
    """What a connection is doing. One that is IDLE or RECEIVING can be evicted."""

    IDLE = "no request of it is open, and no whole header has come"
    RECEIVING = "the header has come, the body has not"
    ANSWERING = "its answer is computed or sent"

    __hash__ = object.__hash__  # Enum's own is written in Python: three calls for each request


IDLE, RECEIVING, ANSWERING = Stage  # in Python 3.11 to look one up takes half a microsecond


class Connection(Protocol):
    """What the table needs to know of a connection, and asks of it."""

    descriptor: int
    address: str
    deadline: float  # the loop's time by which it must have made progress

    def evict(self) -> None:
        """Close, so that another connection fits. A client that waits for an answer gets a 503."""

    def expire(self) -> None:
        """Close: the deadline has passed."""


class ConnectionTable:
    """Bounds the connections by the settings and by the descriptors that the process may have.

    At most `most` connections are RECEIVING or ANSWERING, and only a few more (SPARE) are open at
    all. When another one comes, the connection that has been IDLE for longest is evicted, so that
    clients which connect and send nothing cannot keep others out. If every idle connection is
    younger than GRACE, the new one waits in the listening socket's backlog; an honest client has
    sent its header before it leaves that backlog.
    """

    def __init__(self, settings: ConnectionSettings, descriptors: int) -> None:
        self.most, self._per_address = settings.most, settings.per_address
        self._trusted = [ip_network(each) for each in settings.trusted]
        reserved = min(RESERVED, descriptors // 4)
        self._spare = max(1, min(SPARE, descriptors // 8))
        self._always_idle = max(1, self._spare // 2)  # idle ones allowed, however many are answered
        self._end = descriptors - reserved  # connections have descriptors below this number
        self._begin = self._end - self._spare  # and from this one on
        # Since when each connection is in its stage, oldest first.
        self._by_stage: dict[Stage, dict[Connection, float]] = {stage: {} for stage in Stage}
        self._stages: dict[Connection, Stage] = {}
        self._addresses: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._stages)

    @property
    def _capacity(self) -> int:
        """How many connections can be answered at once."""
        return min(self.most, self._end - self._spare - self._begin)

    @property
    def accept_most(self) -> int:
        """How many connections may be accepted in one turn of the loop."""
        return max(1, self._spare // TURNS, min((self._capacity - len(self)) // 4, MOST_ACCEPTED))

    def count(self, stage: Stage) -> int:
        """How many connections are in this stage."""
        return len(self._by_stage[stage])

    def accept_delay(self, now: float) -> float:
        """Seconds until one more connection may be accepted. Evicts one if that is needed."""
        if len(self) < self._capacity or self.count(IDLE) < self._always_idle:
            return 0.0
        return self.evict_oldest(now)

    def admits_connection(self, descriptor: int, address: str) -> bool:
        """Whether a connection that was accepted may stay."""
        self._begin = min(self._begin, descriptor)
        if self._per_address and self._addresses[address] >= self._per_address:
            return False
        return descriptor < self._end

    def admits_request(self, connection: Connection) -> bool:
        """Whether a request whose header has come can be answered; else only probes are.

        In a full table the connection that has been RECEIVING for longest is evicted for it.
        """
        if self._stages.get(connection) is ANSWERING:  # pipelined: it has its place
            return True
        receiving = self._by_stage[RECEIVING]
        if receiving and len(receiving) + self.count(ANSWERING) >= self._capacity:
            next(iter(receiving)).evict()
        return len(receiving) + self.count(ANSWERING) < self._capacity

    def add(self, connection: Connection, now: float) -> None:
        """A new connection, IDLE."""
        if self._per_address and not self._is_trusted(connection.address):
            self._addresses[connection.address] += 1
        self._stages[connection] = IDLE
        self._by_stage[IDLE][connection] = now

    def remove(self, connection: Connection) -> None:
        """Forget a connection. Does nothing if it is not in the table."""
        if stage := self._stages.pop(connection, None):
            del self._by_stage[stage][connection]
            if self._addresses[connection.address] > 1:
                self._addresses[connection.address] -= 1
            else:
                del self._addresses[connection.address]

    def set_stage(self, connection: Connection, stage: Stage, now: float) -> None:
        """The connection becomes the youngest of the stage. Does nothing if it was removed."""
        if before := self._stages.get(connection):
            del self._by_stage[before][connection]
            self._stages[connection] = stage
            self._by_stage[stage][connection] = now

    def evict_oldest(self, now: float) -> float:
        """Evict the oldest IDLE connection, or where none is idle the oldest RECEIVING one.

        Gives seconds until GRACE is over for the oldest idle one; 0 if one was evicted, or if there
        was none to evict.
        """
        oldest = next(iter(self._by_stage[IDLE]), None)
        if not oldest:
            oldest = next(iter(self._by_stage[RECEIVING]), None)
        elif (left := self._by_stage[IDLE][oldest] + GRACE - now) > 0:
            return left
        if oldest:
            oldest.evict()
        return 0.0

    def expire_overdue(self, now: float) -> None:
        """Close the connections whose deadline has passed."""
        for each in [each for each in self._stages if each.deadline <= now]:
            each.expire()

    def _is_trusted(self, address: str) -> bool:
        try:
            at = ip_address(address)
        except ValueError:  # a socket without an address
            return True
        return at.is_loopback or any(at in network for network in self._trusted)
