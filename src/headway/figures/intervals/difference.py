"""How far two runs differ, and how sure that is (Difference).

Blocks of time are drawn again in both runs (block_bootstrap). Where both were asked the same
requests at the same times the same blocks are drawn in both, so that what a moment's traffic does
to both of them cancels out: the runs are paired by request. Else each run has draws of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.figures.capacity_interval import BLOCKS
from headway.figures.intervals.block_bootstrap import (
    NO_INTERVAL,
    ONE,
    OTHER,
    Interval,
    Timed,
    drawn_means,
    drawn_percentiles,
    is_spread,
    middle,
)
from headway.figures.intervals.share_interval import exact_interval
from headway.figures.lane_figures import has_tpot
from headway.figures.percentile import MIN_BEYOND, percentile
from headway.runs.outcome import Outcome

COVERED = 0.95  # share of the draws inside the interval
PERCENTS = (50, 95)
IN_BUDGET = "in budget"
Window = tuple[int, int]  # nanoseconds: from the end of the warm-up to the last arrival


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of two runs. Times in nanoseconds, shares of one, or amounts per second."""

    metric: str  # "in budget", "TTFT p95", ...
    counts: tuple[int, int]  # values that it is of
    first: float
    second: float
    interval: Interval  # of the second less the first
    more_is_better: bool

    @property
    def change(self) -> float:
        """The second less the first; inf, -inf: one of them did not come within the run."""
        return _less(self.second, self.first)

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return not self.interval.is_empty and (self.interval.low > 0 or self.interval.high < 0)

    @property
    def verdict(self) -> str:
        """What the second is, by the interval."""
        if not self.is_sure:
            return "unclear"
        return "better" if (self.interval.low > 0) is self.more_is_better else "worse"


def same_requests(first: Outcome, second: Outcome, lane: str) -> bool:
    """Whether both were asked the same requests of a lane at the same times."""

    def asked(outcome: Outcome) -> list[tuple[str, int, int]]:
        rows = [row for row in outcome.requests if row.lane == lane]
        return sorted((row.id, row.arrived, row.prompt) for row in rows)

    return first.offered[lane] == second.offered[lane] and asked(first) == asked(second)


def lane_differences(
    runs: tuple[Outcome, Outcome], lane: str, windows: tuple[Window, Window], paired: bool
) -> list[Difference]:
    """Of a lane: the share in budget, and percentiles of TTFT, TPOT and E2E, where both runs have
    enough requests. runs: without the warm-up."""
    rows = [[row for row in run.requests if row.lane == lane] for run in runs]
    missing = [run.offered[lane] - len(mine) for run, mine in zip(runs, rows, strict=True)]
    found = list[Difference]()
    good = [
        [(row.arrived, int(row.good)) for row in mine] + [(window[1], 0)] * lost
        for mine, lost, window in zip(rows, missing, windows, strict=True)
    ]
    if all(good):
        found.append(_of_shares(good, windows, paired))
    for name, read in (("TTFT", _ttft), ("TPOT", _tpot), ("E2E", _e2e)):
        values = [
            read(mine) + ([] if name == "TPOT" else [(window[1], NEVER)] * lost)
            for mine, lost, window in zip(rows, missing, windows, strict=True)
        ]
        found += _of_percentiles(name, values, windows, paired)
    return found


def _ttft(rows: Sequence[RequestRow]) -> list[Timed]:
    return [(row.arrived, row.ttft) for row in rows]


def _tpot(rows: Sequence[RequestRow]) -> list[Timed]:
    return [(row.arrived, row.tpot) for row in rows if has_tpot(row)]


def _e2e(rows: Sequence[RequestRow]) -> list[Timed]:
    return [(row.arrived, row.e2e if row.is_whole else NEVER) for row in rows]


def _of_shares(
    good: Sequence[Sequence[Timed]], windows: tuple[Window, Window], paired: bool
) -> Difference:
    shares = [sum(value for _, value in mine) / len(mine) for mine in good]
    drawn = [
        drawn_means(mine, window, stream)
        for mine, window, stream in zip(good, windows, _streams(paired), strict=True)
    ]
    is_known = min(map(len, good)) >= 2 * MIN_BEYOND and _are_spread(good, windows)
    ends = [exact_interval(mine, COVERED) for mine in good]
    if ends[0] and ends[1]:  # all draws are the same
        interval = Interval(ends[1].low - ends[0].high, ends[1].high - ends[0].low)
    else:
        interval = _interval(drawn[0], drawn[1])
    interval = interval if is_known else NO_INTERVAL
    counts = len(good[0]), len(good[1])
    return Difference(IN_BUDGET, counts, shares[0], shares[1], interval, True)


def _of_percentiles(
    name: str,
    values: Sequence[Sequence[Timed]],
    windows: tuple[Window, Window],
    paired: bool,
) -> list[Difference]:
    drawn = [
        drawn_percentiles(mine, window, PERCENTS, stream)
        for mine, window, stream in zip(values, windows, _streams(paired), strict=True)
    ]
    found, is_known = list[Difference](), _are_spread(values, windows)
    for at, percent in enumerate(PERCENTS):
        first, second = (percentile([v for _, v in mine], percent) for mine in values)
        if first is None or second is None:
            continue
        interval = _interval(drawn[0][at], drawn[1][at]) if is_known else NO_INTERVAL
        counts = len(values[0]), len(values[1])
        found.append(Difference(f"{name} p{percent}", counts, first, second, interval, False))
    return found


def _are_spread(values: Sequence[Sequence[Timed]], windows: tuple[Window, Window]) -> bool:
    return all(is_spread(mine, window) for mine, window in zip(values, windows, strict=True))


def rate_differences(runs: tuple[Outcome, Outcome], warm_up: tuple[int, int]) -> list[Difference]:
    """Answers and output tokens per second, from the warm-up to the end of the run, by when the
    requests ended. Not paired: the runs take different times. runs: without the warm-up."""
    found = list[Difference]()
    for name in ("answers / s", "output tokens / s"):
        rates, drawn, counts = list[float](), list[list[float | None]](), list[int]()
        for run, begin, stream in zip(runs, warm_up, (ONE, OTHER), strict=True):
            seconds = run.nanoseconds / 1e9 or 1.0
            ended = [
                (row.finished, row.generated if name.startswith("output") else int(row.is_whole))
                for row in run.ended
            ]
            total = sum(value for _, value in ended)
            # The mean of a block is of its requests; so one amount for each block of time.
            blocks = _per_block(ended, (begin, begin + run.nanoseconds))
            drawn.append(drawn_means(blocks, (0, len(blocks)), stream))
            drawn[-1] = [None if x is None else x * len(blocks) / seconds for x in drawn[-1]]
            rates.append(total / seconds)
            counts.append(len(ended))
        enough = min(counts) >= 2 * MIN_BEYOND
        interval = _interval(drawn[0], drawn[1]) if enough else NO_INTERVAL
        pair = counts[0], counts[1]
        found.append(Difference(name, pair, rates[0], rates[1], interval, True))
    return found


def _per_block(values: Sequence[Timed], window: Window, blocks: int = BLOCKS) -> list[Timed]:
    """What falls into each of so many blocks of time: (block, sum)."""
    sums, (begin, end) = [0] * blocks, window
    for at, value in values:
        block = (at - begin) * blocks // max(1, end - begin)
        sums[min(max(0, block), blocks - 1)] += value
    return list(enumerate(sums))


def _streams(paired: bool) -> tuple[str, str]:
    return (ONE, ONE) if paired else (ONE, OTHER)


def _interval(first: Sequence[float | None], second: Sequence[float | None]) -> Interval:
    pairs = zip(first, second, strict=True)
    drawn = [_less(b, a) for a, b in pairs if a is not None and b is not None]
    return middle(drawn, COVERED)


def _less(second: float, first: float) -> float:
    """second - first, where NEVER is beyond every time."""
    if second >= NEVER or first >= NEVER:
        return 0.0 if second >= NEVER and first >= NEVER else inf if second >= NEVER else -inf
    return second - first
