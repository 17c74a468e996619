"""The front's clocks: the machine's monotonic one, which the engine shares, and the calendar's."""

from time import monotonic_ns, time, time_ns


def now() -> int:
    """Nanoseconds; comparable with the engine process's, for it is the same machine's."""
    return monotonic_ns()


def unix() -> int:
    """Seconds since 1970, for `created`."""
    return int(time())


def epoch() -> int:
    """Nanoseconds from 1970 to the zero of now()."""
    return time_ns() - monotonic_ns()
