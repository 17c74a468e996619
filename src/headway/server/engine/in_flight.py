"""What the engine has been sent since it published its latest Load. Pure."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from headway.core.admission import Refuse, admit, never
from headway.core.load import Load
from headway.core.request import Request


class Change(NamedTuple):
    """Of a lane's line, as one request comes or goes."""

    lane: str
    requests: int
    tokens: int  # of prompts


class InFlight:
    """Admission at the front, as the engine will see it: its Load with what is on the way.

    sent     1 2 3 4 5 | 6 7 8        Without 6 to 8, each of a burst between two snapshots
    taken    ----------^              would be let in because none of them is seen to wait.

    Who takes another's place in its lane comes with that one's leaving.
    """

    def __init__(self) -> None:
        self.load = Load()  # with what is on the way counted among the waiting
        self._published = Load()
        self._taken = 0
        self._way: deque[list[Change]] = deque()  # what each brings, in order of sending
        self._requests: Counter[str] = Counter()  # of those, by lane
        self._tokens: Counter[str] = Counter()
        self._closing = False

    def admit(
        self, requests: Iterable[Request], now: int, instead: Iterable[Request] = ()
    ) -> Refuse | None:
        """All are on their way now; or the first one's refusal, and none is.

        instead: of those, which were cancelled just before. They are taken to have waited: where
        they ran, one too many is let in, and the engine sees it.
        """
        asked = tuple(requests)
        if refused := never(asked, self.load):
            return refused
        lane = asked[0].lane
        brings = [Change(lane, -1, -len(each.prompt)) for each in instead if each.lane == lane]
        self._count(brings, 1)
        for before, request in enumerate(asked):
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
        """Whether the engine has something to do at once: some run, or it has not taken them in.
        Who only waits may be meant to, for a group to fill."""
        return bool(self._way or self._published.running)

    def publish(self, load: Load, taken: int) -> None:
        """Of all that were ever sent, the engine had so many when it published this."""
        for _ in range(taken - self._taken):
            self._count(self._way.popleft(), -1)
        self._published, self._taken = load, taken
        self._see()

    def close(self) -> None:
        """Nothing more is let in."""
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
                lanes[name] = replace(lane, waiting=max(0, waiting), tokens=max(0, tokens))
        closing = self._closing or self._published.closing
        self.load = replace(self._published, lanes=lanes, closing=closing)
