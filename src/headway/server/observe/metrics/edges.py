"""Time outside the engine: before a request is in its lane, and until its client reads."""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.histogram import TIMES, Histogram

GRAMMAR = ("no", "yes")


class Edges:
    """Counts the time at intake, and the time for which streams waited for their clients."""

    def __init__(self, lanes: Iterable[str]) -> None:
        lanes = tuple(lanes)
        self._intake = {(lane, has): Histogram(TIMES) for lane in lanes for has in GRAMMAR}
        self._waits = {lane: Histogram(TIMES) for lane in lanes}
        self._slow = Counter({(lane,): 0 for lane in lanes})

    def entered(self, lane: str, has_grammar: bool, nanoseconds: int) -> None:
        """Count a call that entered its lane. nanoseconds: since its receipt."""
        self._intake[lane, GRAMMAR[has_grammar]].add(nanoseconds)

    def sent(self, lane: str, nanoseconds: int) -> None:
        """Count a stream that has ended. nanoseconds: for which it waited for its client."""
        self._waits[lane].add(nanoseconds)

    def cut(self, lane: str) -> None:
        """Count a stream that was ended because its client did not read it."""
        self._slow[lane,] += 1

    def collect(self, families: Families) -> Iterator[Metric]:
        """The metric families of both edges."""
        yield families.labelled(
            "headway_intake_seconds",
            "From receipt into the lane: reading, tokenizing, and trying the grammar, if any.",
            self._intake,
            ("lane", "grammar"),
        )
        yield families.by_lane(
            "headway_client_wait_seconds",
            "Of a stream: the time in which its answer was there and its client did not take it.",
            self._waits,
        )
        yield families.counter(
            "headway_slow_readers",
            "Streams that were ended because their client did not read them.",
            self._slow,
            ("lane",),
        )
