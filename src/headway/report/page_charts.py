"""What the report draws: latency distributions, batches over time, step times."""

from collections.abc import Sequence

from headway.core.ledger import StepRow
from headway.core.request import NEVER
from headway.report.analysis import Analysis, values_of
from headway.report.formatting import duration
from headway.report.page_tables import METRICS
from headway.report.svg_chart import Axis, Chart, log_axis

BINS = 60  # of a run's time
POINTS = 80  # of a distribution's line
DOTS = 200  # of a scatter and a kind: of more steps, every second, third or n-th
KINDS = ("decode", "prompt", "padding", "held")


def distribution(found: Analysis, lane: str, metric: str, series: dict[str, str]) -> str:
    """The share of the requests that had it within so many milliseconds, one line a strategy.

    A line that does not reach 1: the others had no answer in the run.
    """
    values = {name: sorted(values_of(found.first(name), lane, metric)) for name in found.strategies}
    limit = getattr(found.report.lanes[lane].budget, metric)
    came = [value / 1e6 for each in values.values() for value in each if 0 < value < NEVER]
    if limit != NEVER:
        came.append(limit / 1e6)
    x = log_axis(came, f"{METRICS[metric]}, milliseconds")
    chart = Chart(f"{lane}: {metric.upper()}", x, Axis(0, 1, "share of requests"))
    if limit != NEVER:
        chart.limit(limit / 1e6, f"budget {duration(limit)}")
    for name, each in values.items():
        if each:
            chart.line(_steps(each), series[name], name)
    return chart.draw("distribution")


def _steps(ordered: Sequence[int]) -> list[tuple[float, float]]:
    count = len(ordered)
    ranks = sorted({1 + (count - 1) * k // (POINTS - 1) for k in range(POINTS)})
    return [(ordered[r - 1] / 1e6, r / count) for r in ranks if ordered[r - 1] < NEVER] or [(0, 0)]


def composition(found: Analysis, name: str) -> str:
    """Tokens computed per second of the first run, by kind, stacked."""
    outcome = found.report.runs[name][0]
    width = max(1, outcome.nanoseconds) / BINS
    sums = {kind: [0.0] * BINS for kind in KINDS}
    for row in outcome.steps:
        at = min(BINS - 1, int(row.began / width))
        for kind, tokens in zip(KINDS, kinds_of(row), strict=True):
            sums[kind][at] += tokens / width * 1e9
    most = max(map(sum, zip(*sums.values(), strict=True)), default=0.0) or 1.0
    x = Axis(0, outcome.nanoseconds / 1e9 or 1.0, "seconds")
    chart = Chart(f"{name}: tokens computed", x, Axis(0, most, "tokens / s"))
    low = [0.0] * BINS
    for kind in KINDS:
        high = [a + b for a, b in zip(low, sums[kind], strict=True)]
        points = [(at * width / 1e9, low[k], high[k]) for k in range(BINS) for at in (k, k + 1)]
        whole = sum(sums[kind]) * width / 1e9
        chart.area(points, f"k-{kind}", f"{kind}: {whole:,.0f} tokens")
        low = high
    return chart.draw("composition")


def kinds_of(row: StepRow) -> tuple[int, int, int, int]:
    """A step's tokens, as KINDS."""
    return row.decodes, row.tokens - row.decodes, row.padding_tokens, row.held_tokens


def scatter(found: Analysis, name: str) -> str:
    """A step's time against the tokens it computed; of next tokens alone, that is the batch."""
    steps = found.counted[name][0].steps
    all_steps = [row for runs in found.counted.values() for row in runs[0].steps]
    x = log_axis((row.tokens + row.waste_tokens for row in all_steps), "tokens computed in it")
    y = log_axis((row.nanoseconds / 1e6 for row in all_steps), "step, milliseconds")
    chart = Chart(f"{name}: step time", x, y)
    for series, wanted in (("k-prompt", False), ("k-decode", True)):
        chosen = [row for row in steps if (row.tokens == row.decodes) is wanted]
        kept = chosen[:: -(-len(chosen) // DOTS) or 1]
        chart.dots(((row.tokens + row.waste_tokens, row.nanoseconds / 1e6) for row in kept), series)
    return chart.draw("scatter")
