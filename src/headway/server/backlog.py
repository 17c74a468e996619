"""What the engine has been sent since it published its latest Load. Pure."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace

from headway.core.admission import Refuse, admit, never
from headway.core.request import Request
from headway.core.view import Load


class Backlog:
    """Admission at the front, as the engine will see it: its Load with what is on the way.

    sent     1 2 3 4 5 | 6 7 8        Without 6 to 8, each of a burst between two snapshots
    taken    ----------^              would be let in because none of them is seen to wait.
    """

    def __init__(self) -> None:
        self.load = Load()  # with what is on the way counted among the waiting
        self._published = Load()
        self._taken = 0
        self._way: deque[tuple[str, int]] = deque()  # lane and prompt tokens, in order of sending
        self._requests: Counter[str] = Counter()  # of those, by lane
        self._tokens: Counter[str] = Counter()
        self._closing = False

    def admit(self, requests: Iterable[Request], now: int) -> Refuse | None:
        """All are on their way now; or the first one's refusal, and none is."""
        asked = tuple(requests)
        if refused := never(asked, self.load):
            return refused
        for before, request in enumerate(asked):
            if isinstance(answer := admit(request, self.load, now), Refuse):
                for _ in range(before):
                    self._count(self._way.pop(), -1)
                self._see()
                return answer
            self._way.append((request.lane, len(request.prompt)))
            self._count(self._way[-1], 1)
            self._see()
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

    def _count(self, one: tuple[str, int], sign: int) -> None:
        lane, tokens = one
        self._requests[lane] += sign
        self._tokens[lane] += sign * tokens

    def _see(self) -> None:
        lanes = dict(self._published.lanes)
        for name, count in self._requests.items():
            if count:
                lane = lanes[name]
                waiting, tokens = lane.waiting + count, lane.tokens + self._tokens[name]
                lanes[name] = replace(lane, waiting=waiting, tokens=tokens)
        closing = self._closing or self._published.closing
        self.load = replace(self._published, lanes=lanes, closing=closing)
