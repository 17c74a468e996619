"""First tokens, and the gaps between tokens, as the engine's events come. Once per step, and in
steady decoding without a look at each of its tokens.
"""

from collections.abc import Iterable, Iterator
from itertools import compress
from typing import NamedTuple

from prometheus_client.core import Metric

from headway.core.batch import Event
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.histogram import TIMES, Histogram, together


class Silent(NamedTuple):
    """A request of which no token has come."""

    lane: str
    arrived: int
    prompt: int  # tokens


class Tokens:
    """Times to first token and between tokens, counted as the tokens come."""

    def __init__(self, lanes: Iterable[str]) -> None:
        self.silent: dict[str, Silent] = {}  # by id of the request
        self.prompted = self.generated = 0
        self._ttft = {lane: Histogram(TIMES) for lane in lanes}
        self._gaps = Histogram(TIMES)
        # When each one spoke last: those of the latest step together, the others one by one.
        self._spoke: tuple[str, ...] = ()
        self._then = 0
        self._last: dict[str, int] = {}

    def hear(self, events: list[Event], now: int) -> None:
        """What came of a step that has ended now."""
        if not events:
            return
        ids, tokens, finishes, *_ = zip(*events, strict=True)
        self.generated += sum(map(len, tokens))
        spoke = ids if all(tokens) else tuple(compress(ids, tokens))
        if spoke == self._spoke:
            self._gaps.add(now - self._then, len(spoke))
        else:
            self._compare(spoke, now)
        self._spoke, self._then = spoke, now
        if any(finishes):
            self._forget(set(compress(ids, finishes)))

    def _compare(self, spoke: tuple[str, ...], now: int) -> None:
        """With when each one spoke before, if it did."""
        last = self._last
        last.update(dict.fromkeys(self._spoke, self._then))
        for id in spoke:
            if (then := last.pop(id, None)) is not None:
                self._gaps.add(now - then)
            elif first := self.silent.pop(id, None):
                self._ttft[first.lane].add(now - first.arrived)
                self.prompted += first.prompt

    def _forget(self, ended: set[str]) -> None:
        self._spoke = tuple([id for id in self._spoke if id not in ended])
        for id in ended:
            self.silent.pop(id, None)
            self._last.pop(id, None)

    def collect(self, families: Families) -> Iterator[Metric]:
        """The metric families of this part."""
        one, by_lane = families.histogram, families.by_lane
        yield by_lane("headway_ttft_seconds", "Arrival to first token.", self._ttft)
        yield one(
            "vllm:time_to_first_token_seconds",
            "Arrival to first token.",
            together(TIMES, self._ttft.values()),
        )
        yield one(
            "vllm:inter_token_latency_seconds",
            "Every gap between two tokens of a request.",
            self._gaps,
        )
        yield families.counter(
            "vllm:prompt_tokens",
            "Prompt tokens of requests whose prompt is computed, cached ones too.",
            {(): self.prompted},
        )
        yield families.counter("vllm:generation_tokens", "Tokens generated.", {(): self.generated})
