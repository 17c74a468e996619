"""Builds prometheus_client's metric families, with the labels that all of them share."""

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from headway.server.observe.metrics.histogram import Histogram

LABELS = ("model_name", "engine")  # vLLM's labels
ENGINE = "0"  # the only one
SECOND = 1_000_000_000  # nanoseconds

Key = TypeVar("Key", bound=tuple[str, ...])  # the values of a family's other labels


class Families:
    """Makes the families of one model. Counters are named without their `_total`."""

    def __init__(self, model: str) -> None:
        self._shared = (model, ENGINE)  # the values of LABELS

    def counter(
        self, name: str, help: str, counts: Mapping[Key, float], labels: tuple[str, ...] = ()
    ) -> CounterMetricFamily:
        """A counter family with one sample per tuple of label values."""
        family = CounterMetricFamily(name, help, labels=(*LABELS, *labels))
        for values, count in counts.items():
            family.add_metric((*self._shared, *values), count)
        return family

    def gauge(
        self, name: str, help: str, gauges: Mapping[Key, float], labels: tuple[str, ...] = ()
    ) -> GaugeMetricFamily:
        """A gauge family with one sample per tuple of label values."""
        family = GaugeMetricFamily(name, help, labels=(*LABELS, *labels))
        for values, gauge in gauges.items():
            family.add_metric((*self._shared, *values), gauge)
        return family

    def histogram(self, name: str, help: str, one: Histogram) -> HistogramMetricFamily:
        """A histogram family with one histogram, of all lanes together."""
        family = HistogramMetricFamily(name, help, labels=LABELS)
        family.add_metric(self._shared, one.buckets, one.sum / one.unit)
        return family

    def by_lane(
        self, name: str, help: str, lanes: Mapping[str, Histogram]
    ) -> HistogramMetricFamily:
        """A histogram family with one histogram per lane."""
        return self.labelled(name, help, {(lane,): one for lane, one in lanes.items()}, ("lane",))

    def labelled(
        self, name: str, help: str, histograms: Mapping[Key, Histogram], labels: tuple[str, ...]
    ) -> HistogramMetricFamily:
        """A histogram family with one histogram per tuple of label values."""
        family = HistogramMetricFamily(name, help, labels=(*LABELS, *labels))
        for values, one in histograms.items():
            family.add_metric((*self._shared, *values), one.buckets, one.sum / one.unit)
        return family


def seconds(nanoseconds: Mapping[Key, int]) -> dict[Key, float]:
    """The values, converted from nanoseconds to seconds."""
    return {values: count / SECOND for values, count in nanoseconds.items()}
