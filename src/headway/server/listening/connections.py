"""Who is connected, and who must go so that others can come."""

from collections import Counter
from enum import Enum
from ipaddress import ip_address, ip_network
from typing import Protocol

from headway.server.config.sections.connections import ConnectionSettings

SPARE = 64  # connections beyond those that are answered: half for /health and to be refused on,
# half for those that have been asked to go and hold a descriptor until the loop's next turn
MANY = 64  # connections that are accepted in one turn of the loop
TURNS = 8  # that accepting SPARE takes, where others must go for them
YOUNG = 0.025  # seconds that a client has to be scheduled and to send, before it may have to go
KEPT = 32  # descriptors that no connection gets: pipes, files, processes that try grammars


class Stage(Enum):
    """Of a connection. In the first two it can be closed so that another may come."""

    QUIET = "has not sent a header that nobody has answered"
    COMING = "has sent its header, and not yet all of its body"
    BUSY = "waits for its answer, or reads it"


class Connection(Protocol):
    descriptor: int
    address: str
    due: float  # the loop's time at which it must have got further

    def make_room(self) -> None:
        """It leaves. It is told why where it would hear that."""

    def expire(self) -> None:
        """It is due."""


class Connections:
    """descriptors: how many the process may have.

    At most `most` are COMING or BUSY, and few more (SPARE) are there at all. When another comes,
    the one that has been QUIET for longest goes: who connects and says little cannot keep others
    out. Where all of those have come just now, the other waits in the listening socket's line. An
    honest client has sent its header before it leaves that line.
    """

    def __init__(self, settings: ConnectionSettings, descriptors: int) -> None:
        self.most, self._per_address = settings.most, settings.per_address
        self._free_of_limit = [ip_network(each) for each in settings.trusted]
        kept = min(KEPT, descriptors // 4)
        self._spare = max(1, min(SPARE, descriptors // 8))
        self._quiet = max(1, self._spare // 2)  # that there may be however many are answered
        self._last = descriptors - kept  # whose number is not lower is closed at once
        self._first = self._last - self._spare  # the lowest number of a connection
        # When each came to its stage, in that order.
        self._in: dict[Stage, dict[Connection, float]] = {stage: {} for stage in Stage}
        self._stages: dict[Connection, Stage] = {}
        self._addresses: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._stages)

    @property
    def _room(self) -> int:
        """How many can be answered at once."""
        return min(self.most, self._last - self._spare - self._first)

    @property
    def batch(self) -> int:
        """How many may be accepted in one turn of the loop."""
        return max(1, self._spare // TURNS, min((self._room - len(self)) // 4, MANY))

    def count(self, stage: Stage) -> int:
        return len(self._in[stage])

    def wait(self, now: float) -> float:
        """Seconds until one more may be accepted; whoever must go for it is asked to."""
        if len(self) < self._room or self.count(Stage.QUIET) < self._quiet:
            return 0.0
        return self.make_room(now)

    def admits(self, descriptor: int, address: str) -> bool:
        """Whether one that was accepted may stay."""
        self._first = min(self._first, descriptor)
        if self._per_address and self._addresses[address] >= self._per_address:
            return False
        return descriptor < self._last

    def enter(self, connection: Connection, now: float) -> None:
        if self._per_address and not self._is_trusted(connection.address):
            self._addresses[connection.address] += 1
        self._stages[connection] = Stage.QUIET
        self._in[Stage.QUIET][connection] = now

    def leave(self, connection: Connection) -> None:
        """Nothing happens if it has left."""
        if stage := self._stages.pop(connection, None):
            del self._in[stage][connection]
            if self._addresses[connection.address] > 1:
                self._addresses[connection.address] -= 1
            else:
                del self._addresses[connection.address]

    def move(self, connection: Connection, stage: Stage, now: float) -> None:
        """It is the last to have come to this stage."""
        if before := self._stages.get(connection):
            del self._in[before][connection]
            self._stages[connection] = stage
            self._in[stage][connection] = now

    def serves(self, connection: Connection) -> bool:
        """Whether its request, whose header has come, can be answered as any other."""
        if self._stages.get(connection) is Stage.BUSY:  # with the one before
            return True
        coming = self._in[Stage.COMING]
        if coming and len(coming) + self.count(Stage.BUSY) >= self._room:
            next(iter(coming)).make_room()
        return len(coming) + self.count(Stage.BUSY) < self._room

    def make_room(self, now: float) -> float:
        """Seconds until somebody can be asked to go; 0 where somebody was, or there is nobody."""
        first = next(iter(self._in[Stage.QUIET]), None)
        if not first:
            first = next(iter(self._in[Stage.COMING]), None)
        elif (left := self._in[Stage.QUIET][first] + YOUNG - now) > 0:
            return left
        if first:
            first.make_room()
        return 0.0

    def sweep(self, now: float) -> None:
        """Those that are due."""
        for each in [each for each in self._stages if each.due <= now]:
            each.expire()

    def _is_trusted(self, address: str) -> bool:
        try:
            at = ip_address(address)
        except ValueError:  # of a socket that has none
            return True
        return at.is_loopback or any(at in network for network in self._free_of_limit)
