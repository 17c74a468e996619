"""The caller of a server (Caller): sends a request, with its retries."""

import asyncio
from email.utils import mktime_tz, parsedate_tz
from random import Random

from headway.live.clock import WallClock, unix_seconds
from headway.runs.remote.answer_rows import REFUSALS, TOO_LATE, Seen
from headway.runs.remote.connection import Broken, Exchange, Left
from headway.runs.remote.connections import Connections
from headway.runs.remote.offer import Offer

CONFLICT, FAILURES, FAULTS = 409, 400, 500  # the last two stand for all statuses from there on
MOST_WAIT = 120.0  # seconds; the openai client does not retry after a longer one
FIRST_WAIT, LAST_WAIT = 0.5, 8.0  # seconds, if the server names no time; doubled each time
JITTER = 0.25  # the largest share of such a wait that is left out at random


class Caller:
    """Sends requests and retries them as the openai client does."""

    def __init__(self, connections: Connections, retries: int, seed: int) -> None:
        """retries: the most attempts of one request after the first."""
        self.connections, self.retries = connections, retries
        self.clock, self.is_over = WallClock(), False
        self._random = Random(f"{seed} retries")

    async def ask(self, offer: Offer, request: bytes, due: int) -> Seen:
        """Send a request, with retries, until its answer is final. due: its scheduled arrival.

        If `is_over` is set, a cancelled task means that the run ended before the request did.
        """
        sent, attempts = self.clock.now(), 0
        exchange, broken, left = Exchange(), "", False
        try:
            while True:
                attempts += 1
                exchange, broken = Exchange(offer.leaves_after, bool(offer.turns)), ""
                try:
                    await self.connections.ask(request, exchange)
                except Broken as error:
                    broken = str(error)
                except Left:
                    left = True
                wait = self._wait(exchange, broken, attempts)
                if left or wait is None:
                    break
                await asyncio.sleep(wait)
        except asyncio.CancelledError:
            if not self.is_over:
                raise
            return Seen(exchange, due, sent, self.clock.now(), attempts, broken, cut=True)
        return Seen(exchange, due, sent, self.clock.now(), attempts, broken, left)

    def _wait(self, exchange: Exchange, broken: str, attempts: int) -> float | None:
        """Seconds until the next attempt; None: do not retry."""
        status, headers, stream = exchange.status, exchange.headers, exchange.stream
        again = status in (TOO_LATE, CONFLICT, *REFUSALS) or status >= FAULTS
        if status >= FAILURES and (said := headers.get(b"x-should-retry")) in (b"true", b"false"):
            again, broken = said == b"true", ""
        if attempts > self.retries or stream.times or stream.done or not (again or broken):
            return None
        told = _seconds(headers)
        if told is not None:
            return told if told <= MOST_WAIT else None
        wait = min(LAST_WAIT, FIRST_WAIT * 2.0 ** (attempts - 1))
        return wait * (1 - JITTER * self._random.random())


def _seconds(headers: dict[bytes, bytes]) -> float | None:
    """Seconds that the server says to wait; None: it names no time, or a past one."""
    told = _told(headers)
    return told if told is not None and told > 0 else None


def _told(headers: dict[bytes, bytes]) -> float | None:
    """Seconds by retry-after-ms, or by retry-after as a number or date, as the openai client reads
    them; None: neither can be read."""
    for name, unit in ((b"retry-after-ms", 1e-3), (b"retry-after", 1.0)):
        try:
            return float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
    try:
        date = parsedate_tz(headers.get(b"retry-after", b"").decode("latin-1"))
        return mktime_tz(date) - unix_seconds() if date else None
    except (TypeError, ValueError, OverflowError):
        return None
