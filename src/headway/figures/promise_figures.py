"""How well the promised times were kept (PromiseFigures)."""

from dataclasses import dataclass

from headway.core.request import NEVER
from headway.figures.percentile import Quantile, percentile
from headway.runs.outcome import Outcome


@dataclass(frozen=True, slots=True)
class PromiseFigures:
    """The figures of one endpoint, or of all, under one strategy that has a cost model."""

    firsts: int  # requests with a promised first token that got their first token
    error_p50: Quantile  # nanoseconds between the promise and the token, early or late
    error_share_p50: int | None  # thousandths of the TTFT; None: too few requests
    ended: int  # requests with a promised end that ended by themselves
    kept: int  # those of `ended` that ended by the promised time

    @property
    def coverage(self) -> float | None:
        """Share of `ended` that kept the promised end; the aim is 0.9. None: no request ended."""
        return self.kept / self.ended if self.ended else None


def promise_figures(outcome: Outcome, lane: str = "") -> PromiseFigures | None:
    """The figures of a lane's requests, or of all; None: no request had a promise to compare."""
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
