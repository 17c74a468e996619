"""The wall clock of a process that runs an engine."""

from time import gmtime, monotonic_ns, sleep, strftime


def date() -> str:
    """When it is, for people to read: UTC. Spans are the WallClock's."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())


class WallClock:
    """The one monotonic clock of the process that runs the engine."""

    def now(self) -> int:
        return monotonic_ns()

    def advance_to(self, time: int) -> None:
        """Sleep until then, so that a trace's inbox serves real time as it does virtual time."""
        if (left := time - self.now()) > 0:
            sleep(left / 1e9)
