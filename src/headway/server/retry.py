"""When a refused client should come back: one after another, or they come back as one burst."""

import random

LEAST, MOST = 1.0, 80.0  # seconds, before the jitter, which makes at most 120 of them
SPREAD = 1.5
SOON = 5.0  # seconds: when to ask again a server that loads its model or is being replaced


def jittered(seconds: float) -> float:
    """From the time until it is worth asking again; between 1 and 120 s."""
    return min(max(seconds, LEAST), MOST) * random.uniform(1.0, SPREAD)


class Returns:
    """Behind each lane's line another one, of those who were refused and may come back.

    line       |<-- waits now, drains within `drained` -->|
    returns                                               | . . . . . |  the next one's place
                                                            `each` apart

    Told when the line will have drained, all who are refused meanwhile would come at that time,
    and most of them would be refused again: at three times the capacity for a minute, every
    second one. A place passes by whether or not somebody comes.
    """

    def __init__(self) -> None:
        self._end: dict[str, int] = {}  # by lane: when the last place that was given is due

    def next(self, lane: str, now: int, drained: int, each: int) -> float:
        """Seconds until the next place, jittered. drained: when the line will have drained;
        each: nanoseconds in which it takes in what was refused."""
        last = now + int(MOST * 1e9)
        due = min(max(drained, self._end.get(lane, 0)), last)
        self._end[lane] = due + each
        return jittered((due - now) / 1e9)
