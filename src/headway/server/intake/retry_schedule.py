"""When a refused client should come back: one after another, or they come back as one burst."""

from headway.server.protocol.retry_after import MOST, jittered


class RetrySchedule:
    """Behind each lane's line others, one for each key, of those who were refused and may return.

    line       |<-- waits now, drains within `drained` -->|
    one key                                               | . . . . . |  the next one's place
    another                                               | . |  `each` apart, times the keys

    Told when the line will have drained, all who are refused meanwhile would come at that time,
    and most of them would be refused again: at three times the capacity for a minute, every
    second one. A place passes by whether or not somebody comes.

    However many of one key are refused, another's places begin where the line has drained: they
    share what is free then, and so each key's places lie as much further apart as there are keys.
    """

    def __init__(self) -> None:
        # By lane and key: when the last place that was given is due.
        self._ends: dict[str, dict[str, int]] = {}

    def next(self, lane: str, key: str, now: int, drained: int, each: int) -> float:
        """Seconds until the key's next place, jittered. drained: when the line will have drained;
        each: nanoseconds in which it takes in what was refused."""
        ends = self._ends.setdefault(lane, {})
        for passed in [name for name, end in ends.items() if end <= now]:
            del ends[passed]
        last = now + int(MOST * 1e9)
        due = min(max(drained, ends.get(key, 0)), last)
        ends[key] = due + each * len({*ends, key})
        return jittered((due - now) / 1e9)
