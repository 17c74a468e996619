"""StoreClock: the time by a store's clock, the same for all servers that share the store."""

from headway.server import clock
from headway.store.database import Database

SECOND = 1_000_000_000  # nanoseconds


class StoreClock:
    """Servers' clocks may differ by minutes, so what they agree on goes by their store's.

    It is asked now and then. In between the time goes by the monotonic clock, which nobody can set.
    A file belongs to one server, whose own clock is enough.
    """

    def __init__(self, database: Database) -> None:
        """Raises StoreError."""
        self._database = database
        self._zero = 0  # as `epoch`, when the store was asked
        self.ask()

    def ask(self) -> int:
        """Unix seconds, asked of the store. For the thread that uses it. Raises StoreError."""
        if self._database.is_file:
            return self._database.now()
        found = self._database.now_ns()
        self._zero = found - clock.now()
        return found // SECOND

    def epoch(self) -> int:
        """As the server's own: nanoseconds from 1970 to the zero point of the monotonic clock."""
        return clock.epoch() if self._database.is_file else self._zero

    def nanoseconds(self) -> int:
        """Unix nanoseconds, without asking."""
        return self.epoch() + clock.now()

    def seconds(self) -> int:
        """Unix seconds, without asking."""
        return clock.unix() if self._database.is_file else self.nanoseconds() // SECOND
