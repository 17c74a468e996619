"""Latency by batch size: step times and gaps between tokens, by the rows of the step."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from headway.core.ledger import StepRow
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.histogram import TIMES, Histogram

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # the largest batch of each class but the last
NAMES = (*map(str, ROWS), "+Inf")
DECODE, MIXED = "decode", "mixed"  # a step with decode rows only; a step with prompts too


class Batches:
    """Histograms by size class. Each is made when its first value comes."""

    def __init__(self) -> None:
        self._steps = dict[tuple[str, str], Histogram]()
        self._gaps = dict[str, Histogram]()

    def add(self, rows: Iterable[StepRow]) -> None:
        """Count steps."""
        for row in rows:
            size = NAMES[bisect_left(ROWS, row.rows)]
            key = size, DECODE if row.decodes == row.rows else MIXED
            if (steps := self._steps.get(key)) is None:
                steps = self._steps[key] = Histogram(TIMES)
            steps.add(row.nanoseconds)

    def gap(self, rows: int, nanoseconds: int) -> None:
        """Count a gap between tokens that all rows of a step share, once per row."""
        size = NAMES[bisect_left(ROWS, rows)]
        if (gaps := self._gaps.get(size)) is None:
            gaps = self._gaps[size] = Histogram(TIMES)
        gaps.add(nanoseconds, rows)

    def collect(self, families: Families) -> Iterator[Metric]:
        """The metric families by batch size."""
        yield families.labelled(
            "headway_step_duration_seconds",
            "How long a step takes, by its rows (the upper end of the class). decode: next tokens "
            "alone; mixed: prompts too.",
            self._steps,
            ("rows", "kind"),
        )
        yield families.labelled(
            "headway_token_gap_seconds",
            "Gaps between tokens in steady decoding, by the step's rows (the upper end).",
            {(size,): gaps for size, gaps in self._gaps.items()},
            ("rows",),
        )
