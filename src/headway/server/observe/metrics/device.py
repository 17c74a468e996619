"""What the device achieves: bytes read and FLOP computed, beside its measured peaks."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from headway.core.ledger import StepRow
from headway.server.engine.device_work import DeviceWork
from headway.server.observe.metrics.families import SECOND, Families


class Device:
    """Sums the work of steps, and keeps the model's load time."""

    def __init__(self) -> None:
        self._work = DeviceWork()
        self._load_ns = 0
        self._steps = self._kv = self._flops = 0

    def loaded(self, work: DeviceWork, load_ns: int) -> None:
        """An engine's model is loaded; it is the same one as in earlier engines."""
        self._work, self._load_ns = work, load_ns

    def add(self, rows: Iterable[StepRow]) -> None:
        """Count the steps of an engine."""
        work = self._work
        for row in rows:
            self._steps += 1
            self._kv += work.kv_read(row)
            self._flops += work.flops(row)

    def collect(self, families: Families) -> Iterator[Metric]:
        """The metric families of the device."""
        work = self._work
        yield families.gauge(
            "headway_model_load_seconds",
            "From the start of the first engine's process until it was ready; 0 before that.",
            {(): self._load_ns / SECOND},
        )
        yield families.counter(
            "headway_device_read_bytes",
            "An estimate of the bytes that steps had to read: the weights once per step, and the "
            "KV blocks in use.",
            {("weights",): self._steps * work.weights, ("kv",): self._kv},
            ("what",),
        )
        if work.token:
            yield families.counter(
                "headway_device_flop",
                "An estimate of the FLOP of the steps' matrix products, without attention.",
                {(): self._flops},
            )
        peaks = {("read_bytes",): work.read_peak, ("flop",): work.products_peak}
        if known := {name: peak for name, peak in peaks.items() if peak}:
            yield families.gauge(
                "headway_device_peak_per_second",
                "What headway calibrate --profile measured that this device can do.",
                known,
                ("what",),
            )
