"""How much a key may ask per minute: token buckets in exact integers. Time is handed in."""

from headway.core.request import NEVER

MINUTE = 60_000_000_000  # nanoseconds


class Bucket:
    """Holds a minute's worth and fills evenly; so a minute after a rest may see twice the rate.

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
        """Nanoseconds until so many are there; 0: now; NEVER: a full bucket holds fewer."""
        if count > self.rate:
            return NEVER
        self._fill(now)
        return max(0, -(-(count * MINUTE - self._level) // self.rate))

    def take(self, count: int, now: int) -> None:
        """So many, which wait() said are there."""
        self._fill(now)
        self._level -= count * MINUTE
        assert self._level >= 0, "more was taken than was there"

    def give_back(self, count: int, now: int) -> None:
        """What was taken and not used; below 0: what was used and not taken."""
        self._fill(now)
        self._level = min(self.rate * MINUTE, self._level + count * MINUTE)

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

    def ask(self, now: int) -> int:
        """One request, before any of it is read: 0 and it is taken, whatever becomes of it; or how
        long to wait, and nothing is. Who owes tokens waits until a single one is there."""
        waits = [0]
        if self._requests:
            waits.append(self._requests.wait(1, now))
        if self._tokens:
            waits.append(self._tokens.wait(1, now))
        if not (wait := max(waits)) and self._requests:
            self._requests.take(1, now)
        return wait

    def begin(self) -> bool:
        """One more at once; False: there are as many as may be."""
        if self._concurrent and self._open >= self._concurrent:
            return False
        self._open += 1
        return True

    def end(self) -> None:
        self._open -= 1
        assert self._open >= 0, "one has ended that had not begun"

    def take(self, tokens: int, now: int) -> int:
        """A request's tokens: 0 and they are taken, or how long to wait, and none is.

        tokens: the most it may come to, its prompt and all that it may generate; what it has not
        used is given back at its end. NEVER: it asks for more than a minute's worth.
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
        """What a request that has ended did not use of its tokens. Below 0:
        what it used beyond them."""
        if self._tokens:
            self._tokens.give_back(tokens, now)
