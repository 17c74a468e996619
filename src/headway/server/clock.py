"""The server's clocks: the machine's monotonic one, which the engine shares, and the calendar."""

from time import monotonic_ns, time, time_ns


def now() -> int:
    """Monotonic nanoseconds, comparable with those of the engine process on this machine."""
    return monotonic_ns()


def unix() -> int:
    """Seconds since 1970, for `created`."""
    return int(time())


def day() -> int:
    """Days since 1970, UTC."""
    return unix() // 86_400


def epoch() -> int:
    """Nanoseconds from 1970 to the zero of now()."""
    return time_ns() - monotonic_ns()
