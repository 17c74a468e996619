"""The interval of a capacity, and the number of requests behind it.

Requests that share steps are not independent. So the bootstrap redraws blocks of time instead of
requests (block bootstrap: Kuensch, Annals of Statistics, 1989), the same blocks at every rate. The
interval says how much the capacity depends on a few bad moments of this traffic. It says nothing
about other traffic.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from random import Random

from headway.core.ledger import RequestRow
from headway.figures.capacity import REQUIRED_ATTAINMENT
from headway.figures.percentile import MIN_BEYOND
from headway.runs.outcome import Outcome

BLOCKS = 20  # of equal duration, after the warm-up
DRAWS = 400
COVERED = 0.9  # share of the draws inside the interval
MOST_SHARE = 0.999  # a higher share needs no more requests


def enough_requests(share: float) -> int:
    """Requests needed for a capacity at this share: as many as for the percentile (p95: 100)."""
    return ceil(round(MIN_BEYOND / (1 - min(share, MOST_SHARE)), 6))


ENOUGH_REQUESTS = enough_requests(REQUIRED_ATTAINMENT)
Tally = tuple[int, int]  # requests offered, and how many of them were good
Tallies = Mapping[str, Sequence[Tally]]  # by lane: one Tally per block


@dataclass(frozen=True, slots=True)
class CapacityInterval:
    """The interval of a capacity, in requests per second."""

    counted: int  # requests of the lane that has the fewest
    lane: str  # name of that lane
    low: float
    high: float
    share: float = REQUIRED_ATTAINMENT

    @property
    def enough(self) -> int:
        return enough_requests(self.share)

    @property
    def is_enough(self) -> bool:
        return self.counted >= self.enough


def seconds_for_enough(seconds: float, counted: int, enough: int = ENOUGH_REQUESTS) -> int:
    """The --seconds that would bring enough requests, given that `seconds` brought `counted`."""
    return ceil(round(1.05 * seconds * enough / max(1, counted), 3))


def tally_blocks(outcome: Outcome, warm_up: int, window: int) -> dict[str, tuple[Tally, ...]]:
    """Count the offered and the good requests, by lane and block.

    outcome: without the warm-up. window: nanoseconds in which all requests arrive.
    """
    tallies = dict[str, tuple[Tally, ...]]()
    for lane, offered in outcome.offered.items():
        rows = [row for row in outcome.requests if row.lane == lane]
        counts, good = [0] * BLOCKS, [0] * BLOCKS
        for row in rows:
            at = _block(row, warm_up, window)
            counts[at] += 1
            good[at] += row.good
        counts[-1] += offered - len(rows)  # 0 unless the run was interrupted
        tallies[lane] = tuple(zip(counts, good, strict=True))
    return tallies


def _block(row: RequestRow, warm_up: int, window: int) -> int:
    at = (row.arrived - warm_up) * BLOCKS // max(1, window - warm_up)
    return min(max(0, at), BLOCKS - 1)


def sum_repeats(runs: Sequence[Tallies]) -> dict[str, tuple[Tally, ...]]:
    """Sum the repeats block by block. Each repeat has the same requests in the same blocks."""
    return {
        lane: tuple(
            (sum(a for a, _ in each), sum(b for _, b in each))
            for each in zip(*(run[lane] for run in runs), strict=True)
        )
        for lane in (runs[0] if runs else ())
    }


def capacity_interval(
    tried: Mapping[float, Tallies],
    rate: float,
    repeats: int,
    seed: int,
    share: float = REQUIRED_ATTAINMENT,
) -> CapacityInterval:
    """The interval of a capacity. It always contains the capacity itself.

    tried: by rate, the tallies of all repeats together. rate: the capacity found; 0: none.
    """
    tallies = tried.get(rate) or tried[max(tried)]
    counts = {lane: sum(a for a, _ in each) // repeats for lane, each in tallies.items()}
    with_requests = {lane: count for lane, count in counts.items() if count}
    lane = min(with_requests, key=lambda name: with_requests[name], default="")
    if rate not in tried:
        return CapacityInterval(with_requests.get(lane, 0), lane, 0.0, 0.0, share)
    found = sorted(_drawn(tried, seed, share))
    left = round(DRAWS * (1 - COVERED) / 2)
    low, high = min(found[left], rate), max(found[-1 - left], rate)
    return CapacityInterval(with_requests.get(lane, 0), lane, low, high, share)


def _drawn(tried: Mapping[float, Tallies], seed: int, share: float) -> Iterable[float]:
    """The capacity of each bootstrap draw."""
    draw = Random(f"{seed} blocks of time")
    for _ in range(DRAWS):
        blocks = draw.choices(range(BLOCKS), k=BLOCKS)
        line = [(rate, _least(tried[rate], blocks)) for rate in sorted(tried)]
        yield _crossing([(rate, least) for rate, least in line if least is not None], share)


def _least(tallies: Tallies, blocks: Sequence[int]) -> float | None:
    """The worst lane's attainment in these blocks; None if they have no requests."""
    shares = []
    for each in tallies.values():
        if offered := sum(each[at][0] for at in blocks):
            shares.append(sum(each[at][1] for at in blocks) / offered)
    return min(shares, default=None)


def _crossing(line: Sequence[tuple[float, float]], share: float) -> float:
    """The highest rate at which the line through the tried rates falls below the share.

    If the line ends at or above the share: the highest rate. If it never reaches the share: 0.
    """
    if line and line[-1][1] >= share:
        return line[-1][0]
    falls = [
        low + (high - low) * (kept - share) / (kept - lost)
        for (low, kept), (high, lost) in pairwise(line)
        if kept >= share > lost
    ]
    return max(falls, default=0.0)
