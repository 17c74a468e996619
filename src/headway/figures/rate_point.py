"""The figures at one rate: a point on the curves of latency and throughput against the rate."""

from dataclasses import dataclass

from headway.figures.client_figures import client_totals
from headway.figures.engine_figures import engine_figures
from headway.figures.lane_figures import LaneFigures, lane_figures
from headway.runs.outcome import Outcome


@dataclass(frozen=True, slots=True)
class RatePoint:
    """The figures of a run at one offered rate, warm-up excluded."""

    rate: float  # requests per second, offered
    lanes: dict[str, LaneFigures]
    requests_per_second: float  # answered
    output_tokens_per_second: float


def rate_point(rate: float, counted: Outcome) -> RatePoint:
    """The figures of one run. rate: the offered rate. counted: without the warm-up."""
    return RatePoint(
        rate,
        {lane: lane_figures(counted, lane) for lane in counted.offered},
        engine_figures(counted).requests_per_second,
        client_totals(counted).output_tokens_per_second,
    )
