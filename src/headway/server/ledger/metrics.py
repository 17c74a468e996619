"""The Prometheus metrics of the ledger, listed in docs/metrics.md."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headway.server import clock
from headway.server.ledger.books import Books

if TYPE_CHECKING:  # a server without a store may lack the store's packages
    from headway.server.ledger.writer import LedgerWriter


class LedgerMetrics:
    """A collector."""

    def __init__(self, books: Books, writers: "Sequence[LedgerWriter]") -> None:
        self._books, self._writers = books, writers

    def collect(self) -> Iterator[Metric]:
        """The families of all metrics."""
        writers, given_up = self._writers, sum([each.given_up for each in self._writers])
        rows = CounterMetricFamily("headway_ledger_rows", "Rows of requests.", labels=["outcome"])
        rows.add_metric(["written"], sum([each.written for each in writers]))
        rows.add_metric(["unrecorded"], self._books.unkept + given_up)
        yield rows
        about = "Flushes that the database did not take."
        failures = sum([each.failures for each in writers])
        yield CounterMetricFamily("headway_ledger_failures", about, failures)
        about = "1 while the database does not take what is written. Else 0."
        away = any(each.away for each in writers)
        yield GaugeMetricFamily("headway_ledger_away", about, int(away))
        last = min([each.last_written for each in writers])
        age = (clock.epoch() + clock.now() - last) / 1e9
        yield GaugeMetricFamily("headway_ledger_age_seconds", "Since the last flush.", age)
