"""How far two runs differ, with an interval (Difference).

Blocks of time are redrawn in both runs (block_bootstrap). If both runs got the same requests at the
same times, they are paired: both use the same drawn blocks, so that the effect of the traffic at
one moment cancels out. Otherwise each run has its own draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
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

COVERED = 0.95  # share of cases in which the interval holds the true difference
PERCENTS = (50, 95)
IN_BUDGET = "in budget"
Window = tuple[int, int]  # nanoseconds: from the end of the warm-up to the last arrival


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure in two runs: nanoseconds, a share from 0 to 1, or an amount per second."""

    metric: str  # "in budget", "TTFT p95", ...
    counts: tuple[int, int]  # number of values in each run
    first: float
    second: float
    interval: Interval  # of second - first
    more_is_better: bool

    @property
    def change(self) -> float:
        """second - first; inf or -inf: one of them is NEVER (not reached within the run)."""
        return _less(self.second, self.first)

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes 0."""
        return not self.interval.is_empty and (self.interval.low > 0 or self.interval.high < 0)

    @property
    def verdict(self) -> str:
        """Whether the second run is better, worse or unclear, judged by the interval."""
        if not self.is_sure:
            return "unclear"
        return "better" if (self.interval.low > 0) is self.more_is_better else "worse"


def same_requests(first: Outcome, second: Outcome, lane: str) -> bool:
    """Whether both runs got the same requests of a lane at the same times."""

    def asked(outcome: Outcome) -> list[tuple[str, int, int]]:
        rows = [row for row in outcome.requests if row.lane == lane]
        return sorted((row.id, row.arrived, row.prompt) for row in rows)

    is_offered = first.offered[lane] == second.offered[lane]
    return is_offered and asked(first) == asked(second) and same_answers(first, second, lane)


def same_answers(first: Outcome, second: Outcome, lane: str) -> bool:
    """Whether the requests of a lane that are in both runs asked for answers of the same lengths,
    as far as the rows say."""
    ours, theirs = _lengths(first, lane), _lengths(second, lane)
    return all(theirs.get(name, length) == length for name, length in ours.items())


def _lengths(outcome: Outcome, lane: str) -> dict[str, int]:
    """The tokens asked for, by request. An engine's rows have them only of answers that reached
    their limit."""
    rows = [row for row in outcome.requests if row.lane == lane]
    if outcome.client:
        mine = {row.id for row in rows}
        return {row.id: row.asked for row in outcome.client if row.id in mine}
    return {row.id: row.generated for row in rows if row.finish is Finish.LENGTH}


def lane_differences(
    runs: tuple[Outcome, Outcome], lane: str, windows: tuple[Window, Window], paired: bool
) -> list[Difference]:
    """The differences in one lane: the share in budget, and percentiles of TTFT, TPOT and E2E where
    both runs have enough requests. runs: without the warm-up."""
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
    if ends[0] and ends[1]:  # all draws are alike
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
    """The differences in answers and output tokens per second, from the warm-up to the end of the
    run. A request counts when it ends. Not paired: the runs differ in length. runs: without the
    warm-up."""
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
            # drawn_means averages values, so sum each block of time into a single value first.
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
    """The sum of the values in each block of time: (block, sum)."""
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
    """second - first. NEVER counts as infinite; of two, the difference is 0."""
    if second >= NEVER or first >= NEVER:
        return 0.0 if second >= NEVER and first >= NEVER else inf if second >= NEVER else -inf
    return second - first
