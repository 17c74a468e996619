"""The server's clocks: the monotonic clock, which the engine processes share, and the calendar."""

from time import monotonic_ns, time, time_ns


def now() -> int:
    """Monotonic nanoseconds, comparable with the engine process's on the same machine."""
    return monotonic_ns()


def unix() -> int:
    """Seconds since 1970, for `created`."""
    return int(time())


def day() -> int:
    """Days since 1970, UTC."""
    return unix() // 86_400


def epoch() -> int:
    """Nanoseconds from 1970 to the zero point of now()."""
    return time_ns() - monotonic_ns()
