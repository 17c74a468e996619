"""Times to first token and gaps between tokens, counted from the engine's events.

They are counted once per step. In steady decoding, no single token is looked at.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import NamedTuple

from prometheus_client.core import Metric

from headway.core.batch import Event
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.histogram import TIMES, Histogram, merged


class Silent(NamedTuple):
    """A request that has no token yet."""

    lane: str
    arrived: int  # nanoseconds
    prompt: int  # tokens


def _nobody(rows: int, nanoseconds: int) -> None:
    """The default for Tokens.steady: does nothing."""


class Tokens:
    """Counts times to first token, gaps between tokens, and the tokens themselves."""

    def __init__(self, lanes: Iterable[str]) -> None:
        self.silent: dict[str, Silent] = {}  # by request id
        self.prompted = self.generated = 0  # tokens
        self._ttft = {lane: Histogram(TIMES) for lane in lanes}
        self._gaps = Histogram(TIMES)
        self.steady: Callable[[int, int], object] = _nobody  # told of each gap that all rows share
        # When each request last got a token: the latest step's requests share one time.
        self._latest: tuple[str, ...] = ()  # ids of the latest step
        self._latest_time = 0
        self._earlier: dict[str, int] = {}  # times of the other requests, by id

    def count(self, events: list[Event], now: int) -> None:
        """Count the events of a step that ended at `now`."""
        if not events:
            return
        ids, tokens, finishes, *_ = zip(*events, strict=True)
        self.generated += sum(map(len, tokens))
        with_token = ids if all(tokens) else tuple(compress(ids, tokens))
        if with_token == self._latest:
            self._gaps.add(now - self._latest_time, len(with_token))
            self.steady(len(with_token), now - self._latest_time)
        else:
            self._count_each(with_token, now)
        self._latest, self._latest_time = with_token, now
        if any(finishes):
            self._forget(set(compress(ids, finishes)))

    def _count_each(self, with_token: tuple[str, ...], now: int) -> None:
        """Count each request's gap since its last token, or its time to first token."""
        earlier = self._earlier
        earlier.update(dict.fromkeys(self._latest, self._latest_time))
        for id in with_token:
            if (previous := earlier.pop(id, None)) is not None:
                self._gaps.add(now - previous)
            elif first := self.silent.pop(id, None):
                self._ttft[first.lane].add(now - first.arrived)
                self.prompted += first.prompt

    def _forget(self, ended: set[str]) -> None:
        self._latest = tuple([id for id in self._latest if id not in ended])
        for id in ended:
            self.silent.pop(id, None)
            self._earlier.pop(id, None)

    def collect(self, families: Families) -> Iterator[Metric]:
        """The metric families of the tokens."""
        one, by_lane = families.histogram, families.by_lane
        yield by_lane("headway_ttft_seconds", "Arrival to first token.", self._ttft)
        yield one(
            "vllm:time_to_first_token_seconds",
            "Arrival to first token.",
            merged(TIMES, self._ttft.values()),
        )
        yield one(
            "vllm:inter_token_latency_seconds",
            "Every gap between two tokens of a request.",
            self._gaps,
        )
        yield families.counter(
            "vllm:prompt_tokens",
            "Prompt tokens of requests whose prompt is computed, cached tokens included.",
            {(): self.prompted},
        )
        yield families.counter("vllm:generation_tokens", "Tokens generated.", {(): self.generated})
