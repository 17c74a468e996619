"""RetrySchedule: staggers the retries of refused clients, so that they do not come as a burst."""

from headway.server.protocol.retry_after import MOST, jittered


class RetrySchedule:
    """Keeps a line of refused requests per key, behind each lane's waiting line.

    line       |<-- waits now, drains within `drained` -->|
    one key                                               | . . . . . |  the next one's place
    another                                               | . |  `each` apart, times the keys

    If every client were told when the lane's line will have drained, all would come at that time
    and many would be refused again: half of them, at three times the capacity for a minute. So each
    refused request gets its own place in time, which passes whether or not it is used.

    A key with many refusals does not delay other keys: each key's places begin when the line has
    drained. From then on the keys share the free capacity, so with more keys each key's places lie
    further apart.
    """

    def __init__(self) -> None:
        # By lane and key: the time at which the key's next place begins.
        self._ends: dict[str, dict[str, int]] = {}

    def next(self, lane: str, key: str, now: int, drained: int, each: int) -> float:
        """Seconds until the key's next place, jittered.

        drained: when the line will have drained. each: nanoseconds in which the lane takes in what
        this call asked for.
        """
        ends = self._ends.setdefault(lane, {})
        for passed in [name for name, end in ends.items() if end <= now]:
            del ends[passed]
        last = now + int(MOST * 1e9)
        due = min(max(drained, ends.get(key, 0)), last)
        ends[key] = due + each * len({*ends, key})
        return jittered((due - now) / 1e9)
