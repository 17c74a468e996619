"""What a client saw of a server: latencies by endpoint, tokens per second, errors, its own lag."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.request import NEVER
from headway.figures.engine_figures import SERVED
from headway.figures.intervals.block_bootstrap import (
    NO_INTERVAL,
    Interval,
    percentile_intervals,
)
from headway.figures.intervals.share_interval import share_interval
from headway.figures.lane_figures import has_tpot
from headway.figures.percentile import Quantile, percentile
from headway.runs.outcome import Outcome

PERCENTS = (50.0, 95.0, 99.0, 99.9)
METRICS = ("ttft", "tpot", "itl", "e2e")
SURE = (50.0, 95.0)  # percentiles with an interval


@dataclass(frozen=True, slots=True)
class Latency:
    """One metric of one endpoint, in nanoseconds."""

    count: int
    quantiles: tuple[Quantile, ...]  # as PERCENTS
    most: Quantile  # None: there are no values
    mean: float  # of the values other than NEVER; 0: there are none
    sure: tuple[Interval, ...]  # as SURE


@dataclass(frozen=True, slots=True)
class ClientLane:
    """What the callers of one endpoint saw."""

    latency: dict[str, Latency]  # by METRICS
    attainment: Interval
    goodput: Interval  # requests per second; empty: too few, or the run was interrupted
    left: int  # callers that were made to leave, including those of the warm-up
    retried: int  # requests that took more than one attempt
    attempts: int
    short: int  # whole answers with fewer tokens than asked for
    errors: tuple[tuple[str, int], ...]  # each error and its count, most frequent first


@dataclass(frozen=True, slots=True)
class ClientTotals:
    """The figures of all endpoints together."""

    input_tokens_per_second: float  # of served requests
    output_tokens_per_second: float  # of all answers, incomplete ones included
    lag: tuple[Quantile, ...]  # as PERCENTS; nanoseconds
    most_lag: int

    @property
    def tokens_per_second(self) -> float:
        return self.input_tokens_per_second + self.output_tokens_per_second


def client_lane(outcome: Outcome, whole: Outcome, lane: str, window: tuple[int, int]) -> ClientLane:
    """The figures of one endpoint.

    outcome: without the warm-up. whole: with the warm-up. window: begins where the warm-up ends.
    """
    pairs = [
        pair for pair in zip(outcome.requests, outcome.client, strict=True) if pair[0].lane == lane
    ]
    missing = outcome.offered[lane] - len(pairs)  # 0 unless the run was interrupted
    rows, seen = [row for row, _ in pairs], [client for _, client in pairs]
    values: dict[str, list[tuple[int, int]]] = {
        "ttft": [(row.arrived, row.ttft) for row in rows],
        "tpot": [(row.arrived, row.tpot) for row in rows if has_tpot(row)],
        "itl": [(row.arrived, gap) for row, client in pairs for gap in client.gaps],
        "e2e": [(row.arrived, row.e2e if row.finish in SERVED else NEVER) for row in rows],
    }
    for name in ("ttft", "e2e"):
        values[name] += [(window[1], NEVER)] * missing
    mine = {row.id for row in whole.requests if row.lane == lane}
    errors = Counter(_what(client.status, client.error) for client in seen if client.error)
    good = [(row.arrived, int(row.good)) for row in rows] + [(window[1], 0)] * missing
    ended = [(row.arrived, int(row.good)) for row in outcome.ended if row.lane == lane]
    seconds = outcome.nanoseconds / 1e9
    # If the run was interrupted, it is unknown when the missing requests would have ended.
    a_second = share_interval(ended, window).times(len(ended) / seconds if seconds else 0.0)
    return ClientLane(
        latency={name: _latency(each, window) for name, each in values.items()},
        attainment=share_interval(good, window),
        goodput=a_second if outcome.complete else NO_INTERVAL,
        left=sum(client.left for client in whole.client if client.id in mine),
        retried=sum(client.attempts > 1 for client in seen),
        attempts=sum(client.attempts for client in seen),
        short=sum(row.finish in SERVED and row.generated < client.asked for row, client in pairs),
        errors=tuple(errors.most_common()),
    )


def client_totals(outcome: Outcome) -> ClientTotals:
    """Throughput in tokens, and the client's own lag. outcome: without the warm-up."""
    seconds = outcome.nanoseconds / 1e9 or 1.0
    lags = [client.lag for client in outcome.client]
    ended = outcome.ended
    return ClientTotals(
        input_tokens_per_second=sum(row.prompt for row in ended if row.finish in SERVED) / seconds,
        output_tokens_per_second=sum(row.generated for row in ended) / seconds,
        lag=tuple(percentile(lags, percent) for percent in PERCENTS),
        most_lag=max(lags, default=0),
    )


def _latency(values: Sequence[tuple[int, int]], window: tuple[int, int]) -> Latency:
    plain = sorted([value for _, value in values])
    came = [value for value in plain if value != NEVER]
    return Latency(
        count=len(plain),
        quantiles=tuple(percentile(plain, percent) for percent in PERCENTS),
        most=plain[-1] if plain else None,
        mean=sum(came) / len(came) if came else 0.0,
        sure=percentile_intervals(values, window, SURE),
    )


def _what(status: int, error: str) -> str:
    return f"{status}: {error}" if status else error
