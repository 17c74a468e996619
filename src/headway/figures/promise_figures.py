"""How well the times were kept that requests were promised (PromiseFigures)."""

from dataclasses import dataclass

from headway.core.request import NEVER
from headway.figures.percentile import Quantile, percentile
from headway.runs.outcome import Outcome


@dataclass(frozen=True, slots=True)
class PromiseFigures:
    """Of one endpoint, or of all, under one strategy that has a cost model."""

    firsts: int  # requests that were promised their first token, and had it
    error_p50: Quantile  # nanoseconds between the promise and the token, before or after it
    error_share_p50: int | None  # thousandths of the TTFT; None: too few requests
    ended: int  # requests that were promised their end, and ended by themselves
    kept: int  # of these, by then

    @property
    def coverage(self) -> float | None:
        """Share of those that ended, by the time promised; nine in ten are to. None: nobody did."""
        return self.kept / self.ended if self.ended else None


def promise_figures(outcome: Outcome, lane: str = "") -> PromiseFigures | None:
    """Of a lane's requests, or of all; None: nothing was promised to any that counts."""
    rows = [row for row in outcome.requests if lane in ("", row.lane)]
    firsts = [row for row in rows if row.first_error != NEVER]
    whole = [row for row in rows if row.was_promised]
    if not (firsts or whole):
        return None
    shares = [1_000 * abs(row.first_error) // max(1, row.ttft) for row in firsts]
    return PromiseFigures(
        firsts=len(firsts),
        error_p50=percentile([abs(row.first_error) for row in firsts], 50),
        error_share_p50=percentile(shares, 50),
        ended=len(whole),
        kept=sum(row.kept_promise for row in whole),
    )
