"""SpendControl: caps on what a request may ask for, and on what its key may spend today."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headway.core.request import NEVER
from headway.server.config.ledger.caps import CapSettings
from headway.server.config.sections.keys import KeySettings
from headway.server.config.sections.prices import BILLION, PriceSettings
from headway.server.config.tenant import Tenant
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.request import ApiRequest
from headway.server.protocol.retry_after import SOON, jittered

HEADER = "x-headway-spend-remaining"
NO_CAPS = CapSettings()


Place = tuple[int, str, str]  # day, key and lane


class Reservation(NamedTuple):
    """The worst-case cost of a call, held until its actual cost is known."""

    place: Place  # day, key and lane at admission
    money: int  # billionths


class SpendControl:
    """Spend totals by day, key and lane, in billionths. Runs on the event loop's thread, except
    `refresh`: another thread calls it, and it only replaces values.

    day: Unix days, UTC. A total is what this server charged, what other servers charged, and what
    is reserved for open calls.
    """

    def __init__(
        self,
        keys: Sequence[KeySettings],
        prices: PriceSettings,
        day: Callable[[], int],
        refuses_when_away: bool = False,
    ) -> None:
        self._caps = {key.name: key.caps for key in keys}
        self.prices, self._day, self._refuses = prices, day, refuses_when_away
        self._calls: dict[str, Reservation] = {}
        self._seen = 0  # the day on which old totals were last dropped
        self._charged, self._reserved = Counter[Place](), Counter[Place]()
        self._lanes: frozenset[str] = frozenset()  # with anything reserved or charged
        # A day, other servers' totals on it, and their lanes; replaced as a whole by `refresh`.
        self._others: tuple[int, Mapping[Place, int], frozenset[str]] = (0, {}, frozenset())
        self.is_away: Callable[[], bool] = lambda: False  # the ledger cannot be written now

    def replace(self, keys: Sequence[KeySettings]) -> None:
        """Use these keys and their caps from now on."""
        self._caps = {key.name: key.caps for key in keys}

    def refresh(self, day: int, others: Mapping[tuple[str, str], int]) -> None:
        """Set what other servers have charged on this day, by key and lane."""
        totals = {(day, *place): money for place, money in others.items()}
        self._others = day, totals, frozenset([lane for _, lane in others])

    # -- before the prompt is tokenized

    def check(self, tenant: Tenant, lane: str, request: ApiRequest) -> ApiRequest:
        """The request, with a default max_tokens lowered to the caps. Raises Problem if the request
        asks for more than the key may in this lane."""
        options, most = request.options, self.most_tokens(tenant, lane)
        if request.unsaid:
            options = replace(options, max_tokens=min(options.max_tokens or 0, most))
        if (asked := max(options.max_tokens or 0, options.min_tokens)) > most:
            what = f"this key may ask for {most} tokens in {lane!r}, not {asked}"
            raise wrong(what, "max_tokens", "max_tokens_capped")
        for cap in self._of(tenant).of_lane(lane):
            if options.n > cap.most_choices:
                what = f"this key may ask for n {cap.n} in {lane!r}, not {options.n}"
                raise wrong(what, "n", "n_capped")
        return request if options == request.options else replace(request, options=options)

    def most_tokens(self, tenant: Tenant, lane: str) -> int:
        """The most tokens that one request may generate; NEVER: no cap."""
        return min([cap.most_tokens for cap in self._of(tenant).of_lane(lane)])

    # -- at admission, and at the end

    def reserve(self, id: str, tenant: Tenant, lane: str, tokens: tuple[int, int]) -> None:
        """Reserve the worst-case cost of the call with this id until `release`. tokens: of its
        prompts and, at most, of its answers. Raises Problem if the key cannot spend so much today.
        """
        prices, day = self.prices, self._day()
        prompt, answer = tokens
        worst = max(prices.charge(prompt, 0, answer), prices.charge(0, prompt, answer))
        if self._of(tenant).cap_money:
            if self._refuses and self.is_away():
                what = "what this key has spent cannot be kept now: the ledger is away"
                raise Problem(503, what, code="ledger_away", retry=jittered(SOON))
            left = self._left(tenant, lane, day)
            if worst > left:
                what = (
                    f"this key may spend {max(0, left) / BILLION:.9f} more in {lane!r} before "
                    f"00:00 UTC, and the request may cost {worst / BILLION:.9f}; ask for fewer "
                    "max_tokens"
                )
                raise Problem(429, what, code="spend_limit_reached", final=True, told=told(left))
        self._lanes |= {lane}
        self._calls[id] = Reservation((day, tenant.key, lane), worst)
        self._reserved[day, tenant.key, lane] += worst

    def release(self, id: str, charged: int) -> int:
        """Replace an ended call's reservation by what it was charged. Returns the day it counts
        for."""
        place, worst = self._calls.pop(id)
        self._charged[place] += charged
        self._reserved[place] -= worst
        if not self._reserved[place]:
            del self._reserved[place]
        if len(self._charged) > 1 and (day := self._day()) != self._seen:
            self._seen = day
            for old in [each for each in self._charged if each[0] < day - 1]:
                del self._charged[old]
        return place[0]

    def headers(self, tenant: Tenant, lane: str) -> dict[str, str]:
        """The headers for an answer to a key with a cap on money; empty for other keys."""
        if not self._of(tenant).cap_money:
            return {}
        return told(self._left(tenant, lane, self._day()))

    def _left(self, tenant: Tenant, lane: str, day: int) -> int:
        """What the key may still spend in this lane: the least of its caps' remainders."""
        caps, left = self._of(tenant), NEVER
        for cap, places in ((caps, None), (caps.lanes.get(lane), lane)):
            if cap and cap.money_per_day:
                left = min(
                    left, round(cap.money_per_day * BILLION) - self._spent(day, tenant.key, places)
                )
        return left

    def _spent(self, day: int, key: str, lane: str | None) -> int:
        """What is charged and reserved, other servers' charges included. lane: None for all."""
        known, others, theirs = self._others
        lanes = self._lanes | theirs if lane is None else (lane,)
        found = 0
        for totals in (self._charged, self._reserved, others if known == day else {}):
            found += sum([totals.get((day, key, each), 0) for each in lanes])
        return found

    def _of(self, tenant: Tenant) -> CapSettings:
        return self._caps.get(tenant.key, NO_CAPS)


def told(left: int) -> dict[str, str]:
    """The header that says what is left, in units of money; none without a cap."""
    return {} if left == NEVER else {HEADER: f"{max(0, left) / BILLION:.9f}"}
