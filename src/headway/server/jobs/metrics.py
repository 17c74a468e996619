"""The Prometheus metrics of jobs, listed in docs/metrics.md."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class JobMetrics:
    """A collector. The event loop's thread counts, except ended jobs: the store's thread does."""

    def __init__(self) -> None:
        self.items: Counter[str] = Counter()  # by outcome
        self.jobs: Counter[tuple[str, str]] = Counter()  # by kind and status
        self.webhooks: Counter[str] = Counter()  # attempts, by outcome
        self.running = self.waiting = 0  # items

    def collect(self) -> Iterator[Metric]:
        """The families of all metrics."""
        items = CounterMetricFamily("headway_job_items", "Items of jobs.", labels=["outcome"])
        for outcome, count in sorted(self.items.items()):
            items.add_metric([outcome], count)
        yield items
        jobs = CounterMetricFamily("headway_jobs", "Jobs that ended.", labels=["kind", "status"])
        for key, count in sorted(self.jobs.copy().items()):
            jobs.add_metric(key, count)
        yield jobs
        about = "Attempts to deliver a webhook."
        webhooks = CounterMetricFamily("headway_job_webhooks", about, labels=["outcome"])
        for outcome, count in sorted(self.webhooks.items()):
            webhooks.add_metric([outcome], count)
        yield webhooks
        yield GaugeMetricFamily("headway_job_items_running", "Being answered.", self.running)
        yield GaugeMetricFamily("headway_job_items_waiting", "In the store.", self.waiting)
