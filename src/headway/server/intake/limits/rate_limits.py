"""Rate limits of a key: token buckets per minute, in exact integers. Time is handed in."""

from headway.core.request import NEVER

MINUTE = 60_000_000_000  # nanoseconds


class Bucket:
    """Holds a minute's worth and fills evenly, so the minute after a rest may see twice the rate.

    level: up to rate x MINUTE, in units of which one costs MINUTE and a nanosecond brings `rate`;
    below 0 where more was used than was taken.
    """

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: int) -> None:
        """rate: per minute; full at first."""
        self.rate = rate
        self._level = rate * MINUTE
        self._at = 0  # when that was so, nanoseconds

    def wait(self, count: int, now: int) -> int:
        """Nanoseconds until `count` can be taken. 0: now. NEVER: a full bucket holds fewer."""
        if count > self.rate:
            return NEVER
        self._fill(now)
        return max(0, -(-(count * MINUTE - self._level) // self.rate))

    def take(self, count: int, now: int) -> None:
        """Take `count`; wait() has returned 0 for it."""
        self._fill(now)
        self._level -= count * MINUTE
        assert self._level >= 0, "more was taken than was there"

    def give_back(self, count: int, now: int) -> None:
        """Return what was taken and not used. Negative: take what was used beyond it; the level may
        fall below 0."""
        self._fill(now)
        self._level = min(self.rate * MINUTE, self._level + count * MINUTE)

    def at_rate(self, rate: int) -> "Bucket":
        """A bucket of another rate with the same share left."""
        other = Bucket(rate)
        other._level, other._at = self._level * rate // self.rate, self._at
        return other

    def _fill(self, now: int) -> None:
        if (passed := now - self._at) > 0:
            self._level = min(self.rate * MINUTE, self._level + passed * self.rate)
            self._at = now


class RateLimit:
    """Requests and tokens per minute of one key, and requests at once; 0: no limit."""

    def __init__(self, requests: int, tokens: int, concurrent: int = 0) -> None:
        self._requests = Bucket(requests) if requests else None
        self._tokens = Bucket(tokens) if tokens else None
        self._concurrent, self._open = concurrent, 0

    def after(self, earlier: "RateLimit | None") -> "RateLimit":
        """This limit, which goes on where an earlier one of the key ends: nothing that was used
        comes back, and the requests that run are known."""
        if earlier:
            self._requests = _after(self._requests, earlier._requests)
            self._tokens = _after(self._tokens, earlier._tokens)
            self._open = earlier._open
        return self

    @property
    def is_busy(self) -> bool:
        """Whether any of the key's requests run."""
        return self._open > 0

    def ask(self, now: int) -> int:
        """Take one request, before any of it is read. Returns 0, or the nanoseconds to wait, and
        takes nothing then. A key that owes tokens waits until it has one again."""
        waits = [0]
        if self._requests:
            waits.append(self._requests.wait(1, now))
        if self._tokens:
            waits.append(self._tokens.wait(1, now))
        if not (wait := max(waits)) and self._requests:
            self._requests.take(1, now)
        return wait

    def begin(self) -> bool:
        """Count one more request at once. False: the key has as many as it may."""
        if self._concurrent and self._open >= self._concurrent:
            return False
        self._open += 1
        return True

    def end(self) -> None:
        self._open -= 1
        assert self._open >= 0, "one has ended that had not begun"

    def take(self, tokens: int, now: int) -> int:
        """Take a request's tokens. Returns 0, or the nanoseconds to wait, and takes nothing then;
        NEVER: it asks for more than a minute's worth.

        tokens: the most it may use, its prompt and all that it may generate. give_back returns
        what it did not use when it ends.
        """
        wait = self._tokens.wait(tokens, now) if self._tokens else 0
        if not wait and self._tokens:
            self._tokens.take(tokens, now)
        return wait

    @property
    def a_minute(self) -> int:
        """Tokens; NEVER: no limit."""
        return self._tokens.rate if self._tokens else NEVER

    def give_back(self, tokens: int, now: int) -> None:
        """Return the tokens that a request did not use. Negative: what it used beyond them."""
        if self._tokens:
            self._tokens.give_back(tokens, now)


def _after(bucket: Bucket | None, earlier: Bucket | None) -> Bucket | None:
    """A key's bucket, which has the share left that its earlier one had."""
    return earlier.at_rate(bucket.rate) if bucket and earlier else bucket
