"""When refused clients should come back: one after another, so that they are no burst."""

from headway.server.protocol.retry_after import MOST, jittered


class RetrySchedule:
    """Behind each lane's waiting line one more line for each key, of its refused requests.

    line       |<-- waits now, drains within `drained` -->|
    one key                                               | . . . . . |  the next one's place
    another                                               | . |  `each` apart, times the keys

    If everybody were told when the lane's line will have drained, all would come at that time and
    most would be refused again: every second one, at three times the capacity for a minute. So each
    refused request gets a place in time of its own, which passes whether or not it is used.

    A key with many refusals does not delay another: each key's places begin when the line has
    drained. The keys share what is free from then on, so the more keys there are, the further apart
    lie the places of each.
    """

    def __init__(self) -> None:
        # By lane and key: the time of the last place that was given out.
        self._ends: dict[str, dict[str, int]] = {}

    def next(self, lane: str, key: str, now: int, drained: int, each: int) -> float:
        """Seconds until the key's next place, jittered.

        drained: when the line will have drained. each: nanoseconds in which the lane takes in what
        was refused.
        """
        ends = self._ends.setdefault(lane, {})
        for passed in [name for name, end in ends.items() if end <= now]:
            del ends[passed]
        last = now + int(MOST * 1e9)
        due = min(max(drained, ends.get(key, 0)), last)
        ends[key] = due + each * len({*ends, key})
        return jittered((due - now) / 1e9)
