"""ConnectionTable: which connections may open, are answered, and are closed to make room."""

from collections import Counter
from enum import Enum
from ipaddress import ip_address, ip_network
from typing import Protocol

from headway.server.config.sections.connections import ConnectionSettings

SPARE = 64  # connections beyond those being answered. Half are for /health and refusals; half are
# for evicted connections, which hold their descriptor until the loop's next turn
MOST_ACCEPTED = 64  # the most connections accepted in one turn of the loop
TURNS = 8  # turns of the loop to accept SPARE connections in, when each needs an eviction
GRACE = 0.025  # seconds in which a new connection is not evicted: its client needs time to send
RESERVED = 32  # descriptors kept from connections: for pipes, files, grammar-check processes


class Stage(Enum):
    """What a connection is doing. An IDLE or RECEIVING connection can be evicted."""

    IDLE = "no request of it is open, and no whole header has come"
    RECEIVING = "the header has come, the body has not"
    ANSWERING = "its answer is computed or sent"

    __hash__ = object.__hash__  # Enum's own is Python code, called three times per request


IDLE, RECEIVING, ANSWERING = Stage  # a member lookup takes half a microsecond in Python 3.11


class Connection(Protocol):
    """A connection as the table sees it."""

    descriptor: int
    address: str

    @property
    def deadline(self) -> float:
        """The loop's time by which the connection must have made progress."""
        ...

    def evict(self) -> None:
        """Close to make room for another connection. A client that waits for an answer gets a
        503."""

    def expire(self) -> None:
        """Close because the deadline has passed."""


class ConnectionTable:
    """Bounds the connections by the settings and by the process's descriptors.

    At most `most` connections are RECEIVING or ANSWERING, and only SPARE more are open at all. When
    the table is full and another connection comes, the longest IDLE connection is evicted, so that
    clients which connect and send nothing cannot keep others out. If every idle connection is
    younger than GRACE, the new one waits in the listening socket's backlog. An honest client has
    sent its header before it leaves that backlog.
    """

    def __init__(self, settings: ConnectionSettings, descriptors: int) -> None:
        self.most, self._per_address = settings.most, settings.per_address
        self._trusted = [ip_network(each) for each in settings.trusted]
        reserved = min(RESERVED, descriptors // 4)
        self._spare = max(1, min(SPARE, descriptors // 8))
        self._always_idle = max(1, self._spare // 2)  # idle connections that are always allowed
        self._end = descriptors - reserved  # connections' descriptors are below this number
        self._begin = self._end - self._spare  # the lowest descriptor of a connection so far
        # When each connection entered its stage, oldest first.
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
        """The most connections to accept in one turn of the loop."""
        return max(1, self._spare // TURNS, min((self._capacity - len(self)) // 4, MOST_ACCEPTED))

    def count(self, stage: Stage) -> int:
        """How many connections are in this stage."""
        return len(self._by_stage[stage])

    def accept_delay(self, now: float) -> float:
        """Seconds until one more connection may be accepted. Evicts one if needed."""
        if len(self) < self._capacity or self.count(IDLE) < self._always_idle:
            return 0.0
        return self.evict_oldest(now)

    def admits_connection(self, descriptor: int, address: str) -> bool:
        """Whether an accepted connection may stay."""
        self._begin = min(self._begin, descriptor)
        if self._per_address and self._addresses[address] >= self._per_address:
            return False
        return descriptor < self._end

    def admits_request(self, connection: Connection) -> bool:
        """Whether a request whose header has come can be answered. If not, only probes are.

        If the table is full, the connection that has been RECEIVING longest is evicted for it.
        """
        if self._stages.get(connection) is ANSWERING:  # pipelined: the connection has a place
            return True
        receiving = self._by_stage[RECEIVING]
        if receiving and len(receiving) + self.count(ANSWERING) >= self._capacity:
            next(iter(receiving)).evict()
        return len(receiving) + self.count(ANSWERING) < self._capacity

    def add(self, connection: Connection, now: float) -> None:
        """Add a new connection as IDLE."""
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
        """Move the connection to this stage, as its youngest. Does nothing if it was removed."""
        if before := self._stages.get(connection):
            del self._by_stage[before][connection]
            self._stages[connection] = stage
            self._by_stage[stage][connection] = now

    def evict_oldest(self, now: float) -> float:
        """Evict the oldest IDLE connection or, if none is idle, the oldest RECEIVING one.

        Returns 0 if one was evicted or there was none to evict. If the oldest idle connection is
        younger than GRACE, evicts none and returns the seconds until its GRACE is over.
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
