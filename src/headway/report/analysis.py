"""All figures of a comparison's report, computed from the report's rows alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.figures.client_figures import ClientLane, ClientTotals, client_lane, client_totals
from headway.figures.engine_figures import (
    SERVED,
    EngineFigures,
    answered_tokens,
    engine_figures,
)
from headway.figures.lane_figures import LaneFigures, goodput, has_tpot, lane_figures
from headway.figures.percentile import MIN_BEYOND, Quantile, percentile
from headway.figures.pressure import PressureCard, pressure_cards
from headway.figures.promise_figures import promise_figures
from headway.figures.tenant_figures import tenant_figures
from headway.figures.warm_up import without_warm_up
from headway.report.report_json import Report
from headway.runs.outcome import Outcome
from headway.strategies.registry import DYNAMIC_GLOBAL, DYNAMIC_LANES
from headway.traffic.endpoint import Endpoint

HOUR = 3_600.0  # seconds
QUANTILES = (95, 50)  # percentiles a guardrail may watch: the first with enough requests
POINTS = 0.005  # of attainment: a loss up to this much does not count


@dataclass(frozen=True, slots=True)
class Money:
    """A run's cost, at the stated price of an hour of this machine, busy or idle."""

    per_million: float | None  # output tokens; None: no output tokens
    per_good: float | None  # request; None: no good requests


@dataclass(frozen=True, slots=True)
class Loss:
    """What an endpoint loses under a strategy, compared with the other strategy."""

    lane: str
    own: LaneFigures
    others: LaneFigures

    @property
    def points(self) -> float:
        return self.others.attainment - self.own.attainment


@dataclass(frozen=True, slots=True)
class Guardrail:
    """The limit a strategy is closest to or furthest beyond, and when to roll it back."""

    lane: str
    metric: str  # a property of a request's row
    percent: int
    own: int  # nanoseconds; NEVER: the percentile was not reached within the run
    others: Quantile
    limit: int  # nanoseconds
    requests: int  # how many the percentile needs

    @property
    def nearness(self) -> float:
        """The spent share of the budget: 1 is all of it."""
        return self.own / self.limit

    @property
    def trigger(self) -> int:
        """The budget, or the other strategy's figure where that breaks the budget too."""
        others = self.others if self.others is not None and self.others != NEVER else 0
        return max(self.limit, others)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A strategy's pressure card: against the baseline, or one window against one per lane."""

    name: str
    other: str
    card: PressureCard
    payer: Loss | None  # the endpoint that loses most; None: no endpoint loses
    guardrail: Guardrail | None  # None: no endpoint has a budget, or all have too few requests


class Analysis:
    """All figures of a report. Each is of one run: tables take every repeat, cards the first."""

    def __init__(self, report: Report) -> None:
        self.report = report
        warm_up = report.warm_up
        self.lanes = list(report.lanes)
        self.strategies = list(report.runs)
        self.counted = {
            name: [without_warm_up(each, warm_up) for each in runs]
            for name, runs in report.runs.items()
        }
        self.latency = {
            name: {lane: [lane_figures(each, lane) for each in runs] for lane in self.lanes}
            for name, runs in self.counted.items()
        }
        self.changes = {name: runs[0].changes for name, runs in report.runs.items()}
        self.tenants = {  # in the first run, for endpoints whose requests have tenants
            name: {lane: mine for lane in self.lanes if (mine := tenant_figures(runs[0], lane))}
            for name, runs in self.counted.items()
        }
        self.promises = {  # None for a run that promised nothing
            name: {lane: [promise_figures(each, lane) for each in runs] for lane in self.lanes}
            for name, runs in self.counted.items()
        }
        self.promised = {  # in the first run, over all endpoints, by strategy that promises
            name: figures
            for name, runs in self.counted.items()
            if (figures := promise_figures(runs[0]))
        }
        self.engine: dict[str, list[EngineFigures]] = {
            name: [engine_figures(each) for each in runs] for name, runs in self.counted.items()
        }
        self.num_blocks = int(report.about["model"].get("num_blocks", 0))
        self.price = float(report.about.get("price_per_hour", 0))
        self.comparisons = self._comparisons()
        self._client = dict[tuple[str, str], list[ClientLane]]()

    @property
    def is_remote(self) -> bool:
        """Whether the report measures servers from the client's side, so runs have no steps."""
        return self.report.about.get("command") == "bench"

    @property
    def noun(self) -> str:
        """The word for what is compared: "server" or "strategy"."""
        return "server" if self.is_remote else "strategy"

    @property
    def nouns(self) -> str:
        return "servers" if self.is_remote else "strategies"

    def client(self, name: str, lane: str) -> list[ClientLane]:
        """What the endpoint's callers saw, one value per repeat."""
        if (name, lane) not in self._client:
            window = self.report.warm_up, int(self.report.about["workload"]["window_ns"])
            pairs = zip(self.counted[name], self.report.runs[name], strict=True)
            self._client[name, lane] = [client_lane(*pair, lane, window) for pair in pairs]
        return self._client[name, lane]

    def totals(self, name: str) -> list[ClientTotals]:
        """Tokens per second and the client's lag, one value per repeat."""
        return [client_totals(each) for each in self.counted[name]]

    @property
    def tail(self) -> int:
        """The higher percentile of the first tables: 95, or 90 if an endpoint has too few
        requests for p95."""
        counts = [n for runs in self.counted.values() for n in runs[0].offered.values() if n]
        return 95 if min(counts, default=0) * 5 >= MIN_BEYOND * 100 else 90

    def goodput(self, name: str, lane: str) -> list[float]:
        """Good requests per second, over the same seconds as the throughput; one per repeat."""
        return [goodput(each, lane) for each in self.counted[name]]

    def money(self, name: str) -> list[Money]:
        """The strategy's cost per million answered tokens and per good request, one per run."""
        costs = []
        for outcome, engine in zip(self.counted[name], self.engine[name], strict=True):
            paid = engine.seconds / HOUR * self.price
            tokens = answered_tokens(outcome)
            good = sum(row.good for row in outcome.ended)
            costs.append(
                Money(paid / tokens * 1e6 if tokens else None, paid / good if good else None)
            )
        return costs

    def is_whole(self, name: str) -> bool:
        """Whether all of the strategy's runs are complete."""
        return all(each.complete for each in self.report.runs[name])

    def title(self, name: str) -> str:
        """The strategy's name, marked if one of its runs was broken off."""
        return name if self.is_whole(name) else f"{name} (broken off)"

    def used(self, name: str) -> dict[str, float]:
        """The resources used in the first run: a time in nanoseconds, and two shares."""
        engine, worked = self.engine[name][0], self.counted[name][0]
        tokens = answered_tokens(worked)
        spent = sum(row.nanoseconds for row in worked.steps)
        return {
            "device time per answered token": spent / tokens if tokens else 0.0,
            "waste": engine.waste,
            "KV in use": engine.kv_mean(self.num_blocks) if self.num_blocks else 0.0,
        }

    def first(self, name: str) -> Outcome:
        """The strategy's first run, without its warm-up.

        Repeats are not pooled: they serve the same requests, so pooling adds no new samples.
        """
        return self.counted[name][0]

    @property
    def baseline(self) -> str:
        return str(self.report.about["baseline"])

    def _comparisons(self) -> list[Comparison]:
        whole = [name for name in self.strategies if self.is_whole(name)]
        pairs = [(name, self.baseline) for name in whole if name != self.baseline]
        if self.baseline not in whole:
            pairs = []
        if DYNAMIC_GLOBAL in whole and DYNAMIC_LANES in whole:
            pairs = [
                (DYNAMIC_GLOBAL, DYNAMIC_LANES),
                *(pair for pair in pairs if pair != (DYNAMIC_GLOBAL, DYNAMIC_LANES)),
            ]
        return [self._compared(name, other) for name, other in pairs]

    def _compared(self, name: str, other: str) -> Comparison:
        pair = {each: self.first(each) for each in (name, other)}
        endpoints = tuple(
            Endpoint(lane.name, "", "", lane.priority, fixed=lane.budget)
            for lane in self.report.lanes.values()
        )
        return Comparison(
            name,
            other,
            pressure_cards(pair, endpoints)[name],
            self._payer(pair[name], pair[other]),
            self._guardrail(pair[name], pair[other]),
        )

    def points(self, compared: Comparison, lane: str) -> list[float]:
        """The points of attainment the endpoint loses, one per repeat, paired by repeat number."""
        own, others = (self.latency[name][lane] for name in (compared.name, compared.other))
        return [
            100 * (other.attainment - mine.attainment)
            for mine, other in zip(own, others, strict=False)  # one may have fewer repeats
        ]

    def _payer(self, own: Outcome, others: Outcome) -> Loss | None:
        losses = [
            Loss(lane, lane_figures(own, lane), lane_figures(others, lane))
            for lane, settings in self.report.lanes.items()
            if settings.budget != Budget() and own.offered[lane]
        ]
        worst = max(losses, key=lambda loss: loss.points, default=None)
        return worst if worst and worst.points > POINTS else None

    def _guardrail(self, own: Outcome, others: Outcome) -> Guardrail | None:
        """The percentile that has spent the largest share of its budget, over all endpoints."""
        found = list[Guardrail]()
        for lane, settings in self.report.lanes.items():
            for metric in ("ttft", "tpot", "e2e", "queue"):
                limit = getattr(settings.budget, metric)
                if limit == NEVER or not limit:
                    continue
                mine, theirs = (values_of(each, lane, metric) for each in (own, others))
                for percent in QUANTILES:
                    if (value := percentile(mine, percent)) is not None:
                        needs = -(-500 // (100 - percent))
                        other = percentile(theirs, percent)
                        found.append(Guardrail(lane, metric, percent, value, other, limit, needs))
                        break
        return max(found, key=lambda each: each.nearness, default=None)


def values_of(outcome: Outcome, lane: str, metric: str) -> list[int]:
    """The raw values of a metric over an endpoint's requests; for TPOT, only requests with one."""
    mine = [row for row in outcome.requests if row.lane == lane]
    if metric == "tpot":
        return [row.tpot for row in mine if has_tpot(row)]
    missing = [NEVER] * (outcome.offered[lane] - len(mine))  # only if the run was interrupted
    return [
        NEVER if metric == "e2e" and row.finish not in SERVED else getattr(row, metric)
        for row in mine
    ] + missing


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, minimum and maximum. The lower median, as a time and NEVER have no mean."""
    return median_low(values), min(values), max(values)
