"""InFlight: admission in the server, by the engine's latest Load plus requests sent since. Pure."""

from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

from headway.core.admission import Refuse, admit, never
from headway.core.load import Load
from headway.core.request import Request


class Change(NamedTuple):
    """How one arriving or leaving request changes its lane's line."""

    lane: str
    requests: int
    tokens: int  # of prompts


class InFlight:
    """Admits requests by the engine's Load plus the requests that are on their way to it.

    sent     1 2 3 4 5 | 6 7 8        Without counting 6 to 8, a whole burst between two
    taken    ----------^              snapshots would be admitted: none is seen to wait.

    A request that takes a cancelled request's place also carries that request's removal.
    """

    def __init__(self) -> None:
        self.load = Load()  # requests on their way count as waiting
        self._published = Load()
        self._taken = 0
        self._way: deque[list[Change]] = deque()  # each sent request's changes, in sending order
        self._requests: Counter[str] = Counter()  # the sum of those changes, by lane
        self._tokens: Counter[str] = Counter()  # likewise, in prompt tokens
        self._closing = False

    def admit(
        self, requests: Iterable[Request], now: int, instead: Iterable[Request] = ()
    ) -> Refuse | None:
        """Admit all of the requests; or admit none and return the first refusal.

        instead: requests cancelled just before, whose places the new requests may take. They are
        assumed to have been waiting. If one was running, one request too many is admitted, and the
        engine refuses it.
        """
        incoming = tuple(requests)
        if refused := never(incoming, self.load):
            return refused
        lane = incoming[0].lane
        brings = [Change(lane, -1, -len(each.prompt)) for each in instead if each.lane == lane]
        self._count(brings, 1)
        for before, request in enumerate(incoming):
            if isinstance(answer := admit(request, self.load, now), Refuse):
                self._count(brings, -1)
                for _ in range(before):
                    self._count(self._way.pop(), -1)
                return answer
            joins = Change(request.lane, 1, len(request.prompt))
            self._count([joins], 1)
            self._way.append([*brings, joins])
            brings = []
        return None

    @property
    def pending(self) -> bool:
        """Whether the engine has work now: running sequences, or requests to take in. Waiting
        requests do not count: they may be waiting for their group to fill."""
        return bool(self._way or self._published.running)

    def publish(self, load: Load, taken: int) -> None:
        """Take the engine's new Load. taken: how many of all requests sent so far it includes."""
        for _ in range(taken - self._taken):
            self._count(self._way.popleft(), -1)
        self._published, self._taken = load, taken
        self._see()

    def close(self) -> None:
        """Admit nothing from now on."""
        self._closing = True
        self._see()

    def _count(self, changes: Iterable[Change], sign: int) -> None:
        for lane, requests, tokens in changes:
            self._requests[lane] += sign * requests
            self._tokens[lane] += sign * tokens
        self._see()

    def _see(self) -> None:
        lanes = dict(self._published.lanes)
        for name, count in self._requests.items():
            if count or self._tokens[name]:
                lane = lanes[name]
                waiting, tokens = lane.waiting + count, lane.tokens + self._tokens[name]
                lanes[name] = lane._replace(waiting=max(0, waiting), tokens=max(0, tokens))
        closing = self._closing or self._published.closing
        self.load = self._published._replace(lanes=lanes, closing=closing)
