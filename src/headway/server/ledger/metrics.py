"""What Prometheus reads of the ledger. docs/metrics.md lists it."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headway.server import clock
from headway.server.ledger.book import Book
from headway.server.ledger.writer import LedgerWriter


class LedgerMetrics:
    """A collector."""

    def __init__(self, book: Book, writer: LedgerWriter) -> None:
        self._book, self._writer = book, writer

    def collect(self) -> Iterator[Metric]:
        """The families of all metrics."""
        book, writer = self._book, self._writer
        rows = CounterMetricFamily("headway_ledger_rows", "Rows of requests.", labels=["outcome"])
        rows.add_metric(["written"], writer.written)
        rows.add_metric(["unrecorded"], book.unkept + writer.given_up)
        yield rows
        about = "Flushes that the database did not take."
        yield CounterMetricFamily("headway_ledger_failures", about, writer.failures)
        about = "1 while the database does not take what is written. Else 0."
        yield GaugeMetricFamily("headway_ledger_away", about, int(writer.away))
        age = (clock.epoch() + clock.now() - writer.last_written) / 1e9
        yield GaugeMetricFamily("headway_ledger_age_seconds", "Since the last flush.", age)
