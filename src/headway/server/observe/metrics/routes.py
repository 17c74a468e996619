"""The metrics of routes: decisions, attempts, and their device time."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from headway.server.intake.routing.decisions import Decisions

TRIED, BASIS = ("route", "target", "outcome"), ("route", "basis")


class RouteMetrics:
    """A Prometheus collector of the routes' metrics."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions

    def collect(self) -> Iterator[Metric]:
        """The metric families of the routes."""
        found = self._decisions
        for name, about, labels, counts in (
            ("decisions", "Requests of routes.", ("route", "why", "target"), found.decided),
            ("attempts", "Targets asked or passed over.", TRIED, found.tried),
        ):
            family = CounterMetricFamily(f"headway_route_{name}", about, labels=labels)
            for key, count in sorted(counts.items()):
                family.add_metric(key, count)
            yield family
        for name, about, times in (
            ("device", "Device time of all attempts.", found.spent),
            ("alone", "What the last target alone would have taken.", found.alone),
        ):
            seconds = CounterMetricFamily(f"headway_route_{name}_seconds", about, labels=BASIS)
            for where, nanoseconds in sorted(times.items()):
                seconds.add_metric(where, nanoseconds / 1e9)
            yield seconds
