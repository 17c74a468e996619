"""Rate limits of a key: per-minute token buckets in exact integers. `now` is handed in."""

from headway.core.request import NEVER

MINUTE = 60_000_000_000  # nanoseconds


class Bucket:
    """A token bucket. It holds one minute's worth and refills evenly, so the minute after an idle
    one may see twice the rate.

    level: at most rate x MINUTE. Taking one costs MINUTE units; each nanosecond adds `rate` units.
    It is below 0 when more was used than was taken.
    """

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: int) -> None:
        """rate: per minute. The bucket starts full."""
        self.rate = rate
        self._level = rate * MINUTE
        self._at = 0  # when the level was last updated, nanoseconds

    def wait(self, count: int, now: int) -> int:
        """Nanoseconds until `count` can be taken. 0: now. NEVER: even a full bucket holds fewer."""
        if count > self.rate:
            return NEVER
        self._fill(now)
        return max(0, -(-(count * MINUTE - self._level) // self.rate))

    def take(self, count: int, now: int) -> None:
        """Take `count`. wait() must have returned 0 for it."""
        self._fill(now)
        self._level -= count * MINUTE
        assert self._level >= 0, "more was taken than was there"

    def give_back(self, count: int, now: int) -> None:
        """Return what was taken but not used. A negative count charges what was used beyond that;
        the level may fall below 0."""
        self._fill(now)
        self._level = min(self.rate * MINUTE, self._level + count * MINUTE)

    def at_rate(self, rate: int) -> "Bucket":
        """A bucket with another rate and the same share left."""
        other = Bucket(rate)
        other._level, other._at = self._level * rate // self.rate, self._at
        return other

    def _fill(self, now: int) -> None:
        if (passed := now - self._at) > 0:
            self._level = min(self.rate * MINUTE, self._level + passed * self.rate)
            self._at = now


class RateLimit:
    """Limits of one key: requests per minute, tokens per minute, concurrent requests. 0: none."""

    def __init__(self, requests: int, tokens: int, concurrent: int = 0) -> None:
        self._requests = Bucket(requests) if requests else None
        self._tokens = Bucket(tokens) if tokens else None
        self._concurrent, self._open = concurrent, 0

    def after(self, earlier: "RateLimit | None") -> "RateLimit":
        """Continue from an earlier limit of the same key. Used shares stay used, and running
        requests stay counted. Returns self."""
        if earlier:
            self._requests = _after(self._requests, earlier._requests)
            self._tokens = _after(self._tokens, earlier._tokens)
            self._open = earlier._open
        return self

    @property
    def is_busy(self) -> bool:
        """Whether any request of the key is running."""
        return self._open > 0

    @property
    def room(self) -> int:
        """How many more requests may begin now; NEVER: no limit."""
        return max(0, self._concurrent - self._open) if self._concurrent else NEVER

    def ask(self, now: int) -> int:
        """Take one request, before its body is read. Returns 0; or takes nothing and returns the
        nanoseconds to wait. A key that owes tokens waits until it has one again."""
        waits = [0]
        if self._requests:
            waits.append(self._requests.wait(1, now))
        if self._tokens:
            waits.append(self._tokens.wait(1, now))
        if not (wait := max(waits)) and self._requests:
            self._requests.take(1, now)
        return wait

    def begin(self) -> bool:
        """Count one more concurrent request. False: the key is at its limit."""
        if self._concurrent and self._open >= self._concurrent:
            return False
        self._open += 1
        return True

    def end(self) -> None:
        self._open -= 1
        assert self._open >= 0, "one has ended that had not begun"

    def take(self, tokens: int, now: int) -> int:
        """Take a request's tokens. Returns 0; or takes nothing and returns the nanoseconds to wait.
        NEVER: the request asks for more than a minute's worth.

        tokens: the most the request may use, its prompt plus all it may generate. give_back returns
        what it did not use when it ends.
        """
        wait = self._tokens.wait(tokens, now) if self._tokens else 0
        if not wait and self._tokens:
            self._tokens.take(tokens, now)
        return wait

    @property
    def a_minute(self) -> int:
        """Tokens per minute; NEVER: no limit."""
        return self._tokens.rate if self._tokens else NEVER

    def give_back(self, tokens: int, now: int) -> None:
        """Return the tokens a request did not use. A negative count charges what it used beyond."""
        if self._tokens:
            self._tokens.give_back(tokens, now)


def _after(bucket: Bucket | None, earlier: Bucket | None) -> Bucket | None:
    """The key's new bucket, with the share left that its earlier bucket had."""
    return earlier.at_rate(bucket.rate) if bucket and earlier else bucket
