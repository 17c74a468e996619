"""The figures of a lane (LaneFigures): attainment and latency percentiles."""

from dataclasses import dataclass

from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.figures.percentile import Quantile, percentile
from headway.runs.outcome import Outcome


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """The figures of one endpoint under one strategy. All offered requests count."""

    lane: str
    offered: int
    good: int
    queue_p50: Quantile
    queue_p90: Quantile
    queue_p95: Quantile
    queue_p99: Quantile
    ttft_p50: Quantile
    ttft_p90: Quantile
    ttft_p95: Quantile
    ttft_p99: Quantile
    tpot_p50: Quantile
    tpot_p90: Quantile
    tpot_p95: Quantile
    tpot_p99: Quantile
    gaps: int  # requests that have a TPOT (has_tpot)

    @property
    def attainment(self) -> float:
        """Share of the offered requests that are good: ended inside every limit of the lane."""
        return self.good / self.offered if self.offered else 0.0


def lane_figures(outcome: Outcome, lane: str) -> LaneFigures:
    """One lane's attainment and latency percentiles in a run. Times are nanoseconds."""
    rows = [row for row in outcome.requests if row.lane == lane]
    missing = [NEVER] * (outcome.offered[lane] - len(rows))  # empty unless interrupted
    queue = [row.queue for row in rows] + missing
    ttft = [row.ttft for row in rows] + missing
    tpot = [row.tpot for row in rows if has_tpot(row)]
    return LaneFigures(
        lane=lane,
        offered=outcome.offered[lane],
        good=sum(row.good for row in rows),
        queue_p50=percentile(queue, 50),
        queue_p90=percentile(queue, 90),
        queue_p95=percentile(queue, 95),
        queue_p99=percentile(queue, 99),
        ttft_p50=percentile(ttft, 50),
        ttft_p90=percentile(ttft, 90),
        ttft_p95=percentile(ttft, 95),
        ttft_p99=percentile(ttft, 99),
        tpot_p50=percentile(tpot, 50),
        tpot_p90=percentile(tpot, 90),
        tpot_p95=percentile(tpot, 95),
        tpot_p99=percentile(tpot, 99),
        gaps=len(tpot),
    )


def goodput(outcome: Outcome, lane: str) -> float:
    """Good requests per second. A request counts where it ends, as in the throughput."""
    good = sum(row.good for row in outcome.ended if row.lane == lane)
    return good / (outcome.nanoseconds / 1e9) if outcome.nanoseconds else 0.0


def has_tpot(row: RequestRow) -> bool:
    """Whether the request has a TPOT: at least two tokens, which did not all come at one moment.

    They do come at one moment where static batching answers when the group ends.
    """
    return row.generated >= 2 and row.last_token > row.first_token
