"""Who is connected, and who must go so that others can come."""

from collections import Counter
from enum import Enum
from ipaddress import ip_address, ip_network
from typing import Protocol

from headway.server.connecting import ConnectionSettings

SPARE = 64  # connections beyond those that are answered: for /health, and to be refused on
MANY = 64  # connections that are accepted in one turn of the loop
TURNS = 8  # of the loop: one that has come is not asked to go before its header could be read
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
        """It is closed, and told why where it would hear that."""

    def expire(self) -> None:
        """It is due."""


class Connections:
    """descriptors: how many the process may have.

    At most `most` are COMING or BUSY, and few more (SPARE) are there at all. When another comes,
    the one that has been QUIET for longest goes, and where there is none the one that is COMING
    for longest: who connects and says little cannot keep others out.
    """

    def __init__(self, settings: ConnectionSettings, descriptors: int) -> None:
        self.most, self._per_address = settings.most, settings.per_address
        self._free_of_limit = [ip_network(each) for each in settings.trusted]
        kept = min(KEPT, descriptors // 4)
        self._spare = max(1, min(SPARE, descriptors // 8))
        self._last = descriptors - kept  # whose number is not lower is closed at once
        self._crowded = self._last - self._spare  # from here on others go first
        self._first = self._crowded  # the lowest number of a connection
        self._in: dict[Stage, dict[Connection, None]] = {stage: {} for stage in Stage}
        self._stages: dict[Connection, Stage] = {}
        self._addresses: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._stages)

    @property
    def batch(self) -> int:
        """How many may be accepted in one turn of the loop: few where others go for them."""
        room = min(self.most, self._crowded - self._first) - len(self)
        return max(1, self._spare // TURNS, min(room // 4, MANY))

    def count(self, stage: Stage) -> int:
        return len(self._in[stage])

    def admits(self, descriptor: int, address: str) -> bool:
        """Whether one more may come; another may have to go for it."""
        self._first = min(self._first, descriptor)
        if self._per_address and self._addresses[address] >= self._per_address:
            return False
        if len(self) >= self.most + self._spare or descriptor >= self._crowded:
            self.make_room()
        return descriptor < self._last

    def enter(self, connection: Connection) -> None:
        if self._per_address and not self._is_trusted(connection.address):
            self._addresses[connection.address] += 1
        self._stages[connection] = Stage.QUIET
        self._in[Stage.QUIET][connection] = None

    def leave(self, connection: Connection) -> None:
        """Nothing happens if it has left."""
        if stage := self._stages.pop(connection, None):
            del self._in[stage][connection]
            if self._addresses[connection.address] > 1:
                self._addresses[connection.address] -= 1
            else:
                del self._addresses[connection.address]

    def move(self, connection: Connection, stage: Stage) -> None:
        """It is the last to have come to this stage."""
        if before := self._stages.get(connection):
            del self._in[before][connection]
            self._stages[connection] = stage
            self._in[stage][connection] = None

    def serves(self, connection: Connection) -> bool:
        """Whether its request, whose header has come, can be answered as any other."""
        if self._stages.get(connection) is Stage.BUSY:  # with the one before
            return True
        if connection.descriptor >= self._crowded:
            return False
        coming = self._in[Stage.COMING]
        if coming and len(coming) + self.count(Stage.BUSY) >= self.most:
            next(iter(coming)).make_room()
        return len(coming) + self.count(Stage.BUSY) < self.most

    def make_room(self) -> bool:
        """Whether somebody could be asked to go."""
        for stage in (Stage.QUIET, Stage.COMING):
            if first := next(iter(self._in[stage]), None):
                first.make_room()
                return True
        return False

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
