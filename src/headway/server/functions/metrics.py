"""A function's metrics for Prometheus: calls, items and waits, from the ledger's rows."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from headway.core.ledger import RequestRow, StepRow
from headway.core.load import Load
from headway.core.request import NEVER
from headway.server.engine.handle import Rows
from headway.server.observe.metrics.histogram import SEQUENCES, TIMES, Histogram


class FunctionMetrics:
    """A collector of a function's metrics. The engine's thread adds rows; the event loop's thread
    reads them."""

    load: Callable[[], Load]

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._ended: Counter[tuple[str, str]] = Counter()  # by lane and outcome
        self._queue, self._e2e = Histogram(TIMES), Histogram(TIMES)
        self._calls, self._sizes = Histogram(TIMES), Histogram(SEQUENCES)
        self._padding = 0
        self.refused = 0  # at the door
        self.listeners: list[Rows] = []  # told of rows after this, in the engine's thread
        self.refusing: list[Callable[[str, int], object]] = []  # told of refusals: lane and time

    def refuse(self, lane: str, at: int) -> None:
        """Count an item that was refused at the door. at: nanoseconds."""
        self.refused += 1
        for told in self.refusing:
            told(lane, at)

    def rows(self, calls: list[StepRow], items: list[RequestRow]) -> None:
        """Count calls and items, as Batcher's `rows`."""
        with self._lock:
            for call in calls:
                self._calls.add(call.nanoseconds)
                self._sizes.add(call.rows)
                self._padding += call.waste_tokens
            for item in items:
                self._ended[item.lane, str(item.finish)] += 1
                self._e2e.add(item.finished - item.arrived)
                if item.queue != NEVER:
                    self._queue.add(item.queue)
        for listener in self.listeners:
            listener(calls, items)

    def collect(self) -> Iterator[Metric]:
        """The families of all metrics."""
        with self._lock:
            ended, waste, refused = Counter(self._ended), self._padding, self.refused
            histograms = [
                ("call_seconds", "What a call took.", _read(self._calls)),
                ("call_items", "Items of a call.", _read(self._sizes)),
                ("queue_seconds", "From an item's arrival to its call.", _read(self._queue)),
                ("e2e_seconds", "From an item's arrival to its result.", _read(self._e2e)),
            ]
        labels = ["function"]
        for name, about, (buckets, total) in histograms:
            family = HistogramMetricFamily(f"headway_function_{name}", about, labels=labels)
            family.add_metric([self._name], buckets, total)
            yield family
        items = CounterMetricFamily(
            "headway_function_items", "Items that have ended.", labels=["function", "lane", "end"]
        )
        for (lane, end), count in sorted(ended.items()):
            items.add_metric([self._name, lane, end], count)
        yield items
        for name, about, value in (
            ("refused", "Items refused because their lane was full.", refused),
            ("padding", "Cost of the padding of items.", waste),
        ):
            counter = CounterMetricFamily(f"headway_function_{name}", about, labels=labels)
            counter.add_metric([self._name], value)
            yield counter
        waiting = GaugeMetricFamily(
            "headway_function_waiting", "Items that wait.", labels=["function", "lane"]
        )
        for lane, line in self.load().lanes.items():
            waiting.add_metric([self._name, lane], line.waiting)
        yield waiting


def _read(histogram: Histogram) -> tuple[list[tuple[str, int]], float]:
    return histogram.buckets, histogram.sum / histogram.unit
