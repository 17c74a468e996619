"""The wall clock of a process that runs an engine."""

from time import gmtime, monotonic_ns, sleep, strftime, time


def date(at: float | None = None) -> str:
    """The date and time in UTC, for people. at: Unix seconds, or None for now. Measure durations
    with WallClock instead."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(at))


def unix_seconds() -> float:
    """The current Unix time in seconds, to compare with dates from outside."""
    return time()


class WallClock:
    """The one monotonic clock of a process that runs an engine."""

    def now(self) -> int:
        return monotonic_ns()

    def advance_to(self, time: int) -> None:
        """Sleep until this time, so that a TraceInbox works in real time as in virtual time."""
        if (left := time - self.now()) > 0:
            sleep(left / 1e9)
