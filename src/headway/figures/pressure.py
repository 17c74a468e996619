"""Pressure cards: the largest gain and the largest loss of a strategy against another.

The metrics are every endpoint's TTFT and TPOT, the time the backlog takes, the share of computed
tokens that is waste, and the device time per generated token. Queue time is part of the TTFT, so it
is not counted twice. All metrics are computed from the ledger's rows. NEVER (not reached within the
run) counts as longer than any time. It gives no finite ratio, because a refused request never
waited.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from headway.core.request import NEVER
from headway.figures.engine_figures import SERVED, answered_tokens, engine_figures
from headway.figures.lane_figures import lane_figures
from headway.figures.percentile import Quantile
from headway.runs.outcome import Outcome
from headway.traffic.endpoint import Endpoint

MIN_RATIO = 1.1  # a ratio closer to one does not count as a difference


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric by which strategies are compared. Less is better."""

    what: str  # the pressure that is relieved or created, in words
    figure: str  # the figure that measures it, such as TTFT p95
    unit: str  # "ns" or "share"


@dataclass(frozen=True, slots=True)
class Pressure:
    """How one metric compares under two strategies."""

    gauge: Metric
    strategy: str  # the strategy whose pressure this is
    other: str  # the strategy it is compared with
    readings: Mapping[str, float]  # by strategy; NEVER: not reached within the run

    @property
    def own(self) -> float:
        return self.readings[self.strategy]

    @property
    def others(self) -> float:
        return self.readings[self.other]

    @property
    def says(self) -> bool:
        """Whether the two can be compared: neither is 0, and at most one is NEVER."""
        return min(self.own, self.others) > 0 and min(self.own, self.others) < NEVER

    @property
    def ratio(self) -> float:
        """The strategy's value over the other's; inf: its own is NEVER; 0: the other's is NEVER."""
        if self.own == NEVER:
            return inf
        return 0.0 if self.others == NEVER else self.own / self.others


@dataclass(frozen=True, slots=True)
class PressureCard:
    """The largest gain and loss of one strategy. None: no difference worth a mention."""

    relieved: Pressure | None
    created: Pressure | None


def pressure_cards(
    outcomes: Mapping[str, Outcome], endpoints: tuple[Endpoint, ...]
) -> dict[str, PressureCard]:
    """A card for each strategy; empty if there is only one strategy."""
    if len(outcomes) < 2:
        return {}
    readings = [readings_of(outcome, endpoints) for outcome in outcomes.values()]
    shared = [gauge for gauge in readings[0] if all(gauge in each for each in readings)]
    highest = dict[str, Metric]()  # by `what`: the highest percentile that all outcomes have
    for gauge in shared:
        highest.setdefault(gauge.what, gauge)
    table = {
        gauge: dict(zip(outcomes, [each[gauge] for each in readings], strict=True))
        for gauge in highest.values()
    }
    return {name: _card(name, table) for name in outcomes}


def _card(name: str, table: Mapping[Metric, Mapping[str, float]]) -> PressureCard:
    pressures = [
        pressure
        for gauge, readings in table.items()
        for other in readings
        if other != name and (pressure := Pressure(gauge, name, other, readings)).says
    ]
    least = min(pressures, key=lambda p: p.ratio, default=None)
    most = max(pressures, key=lambda p: p.ratio, default=None)
    return PressureCard(
        relieved=least if least and least.ratio < 1 / MIN_RATIO else None,
        created=most if most and most.ratio > MIN_RATIO else None,
    )


def readings_of(outcome: Outcome, endpoints: tuple[Endpoint, ...]) -> dict[Metric, float]:
    """The known values of one run, by metric; a higher percentile comes before a lower one."""
    readings: dict[Metric, float] = {}
    for endpoint in endpoints:
        name = endpoint.name
        if endpoint.is_offline:
            rows = [row for row in outcome.requests if row.lane == name]
            ends = [row.finished if row.finish in SERVED else NEVER for row in rows]
            done = Metric(f"the time that {name} takes", "last answer after", "ns")
            _read(readings, done, max(ends, default=None))
            continue
        figures = lane_figures(outcome, name)
        waits, paces = (
            [(figures.ttft_p95, "TTFT p95"), (figures.ttft_p50, "TTFT p50")],
            [(figures.tpot_p95, "TPOT p95"), (figures.tpot_p50, "TPOT p50")],
        )
        for what, both in (("first-token wait", waits), ("time per token", paces)):
            for value, words in both:
                _read(readings, Metric(f"the {what} of {name}", words, "ns"), value)
    engine = engine_figures(outcome)
    readings[Metric("computing for nobody", "waste", "share")] = engine.waste
    tokens = answered_tokens(outcome)
    spent = sum(row.nanoseconds for row in outcome.steps)
    if tokens:
        device = Metric("the device time of an answer", "a token of it", "ns")
        readings[device] = spent / tokens
    return readings


def _read(readings: dict[Metric, float], gauge: Metric, value: Quantile) -> None:
    if value is not None:
        readings[gauge] = value
