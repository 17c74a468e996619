"""From ledger rows to the figures of a lane and of the engine."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from headway.core.lane import Budget
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.runs.outcome import Outcome

MIN_BEYOND = 5  # values beyond a percentile; with fewer there are too few requests (p95: 100)
SERVED = (Finish.STOP, Finish.LENGTH, Finish.COMPUTED)

# Nanoseconds; NEVER: not reached within the run; None: too few values.
Quantile = int | None


def percentile(values: Iterable[int], percent: int) -> Quantile:
    """Nearest rank on the raw values: the least value that `percent` % do not exceed."""
    ordered = sorted(values)
    if len(ordered) * (100 - percent) < MIN_BEYOND * 100:
        return None
    return ordered[-(-len(ordered) * percent // 100) - 1]


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
    gaps: int  # requests that have a TPOT: two tokens or more, not all at one moment

    @property
    def attainment(self) -> float:
        """Share of the offered requests that are good: ended inside every limit of the lane."""
        return self.good / self.offered if self.offered else 0.0

    def goodput(self, engine: "EngineFigures") -> float:
        """Good requests per second, over the same seconds as the engine's figures."""
        return _share(self.good, engine.seconds)


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """The figures of the engine under one strategy."""

    seconds: float  # from the end of the warm-up to the end of the last step
    served: int  # requests that ended by themselves
    refused: int  # too long for the engine, or the lane was full
    failed: int
    unfinished: int  # expired, or unfinished at the end of the run
    requests_per_second: float
    tokens_per_second: float  # of answers, without discarded ones
    slots: float  # that computed for a request: mean over the steps' time
    busy: float  # share of the seconds in which a step ran
    held: float  # share of the computed tokens that were for finished slots
    padding: float  # share of the computed tokens that were padding
    discarded: float  # share of them that were sampled past an answer's end
    recomputed: float  # share of them that were computed before, and lost to a preemption
    cached: float  # share of the prompts' tokens that the prefix cache had
    preemptions: int
    free_mean: float  # KV blocks: mean over the steps' time
    free_least: int

    @property
    def waste(self) -> float:
        return self.held + self.padding

    @property
    def unserved(self) -> int:
        """Offered requests that were not served."""
        return self.refused + self.failed + self.unfinished

    @property
    def plain(self) -> dict[str, Any]:
        """As a report's JSON has it."""
        return asdict(self) | {"unserved": self.unserved}


def requests_after_warm_up(outcome: Outcome, warm_up: int) -> Outcome:
    """Without the requests of the warm-up; a starting backlog counts."""
    return _of(
        outcome,
        (
            row
            for row in outcome.requests
            if row.arrived >= warm_up or (row.arrived == 0 and row.budget == Budget())
        ),
    )


def without_warm_up(outcome: Outcome, warm_up: int) -> Outcome:
    """Without the requests, steps and time of the warm-up: what all figures are computed from."""
    return replace(
        requests_after_warm_up(outcome, warm_up),
        steps=tuple(row for row in outcome.steps if row.began >= warm_up),
        nanoseconds=max(0, outcome.nanoseconds - warm_up),
    )


def _of(outcome: Outcome, rows: Iterable[RequestRow]) -> Outcome:
    """The outcome with only these rows, and with the offered counts reduced to match."""
    kept = tuple(rows)
    left = Counter(row.lane for row in outcome.requests) - Counter(row.lane for row in kept)
    offered = {lane: count - left[lane] for lane, count in outcome.offered.items()}
    return replace(outcome, offered=offered, requests=kept)


def lane_figures(outcome: Outcome, lane: str) -> LaneFigures:
    """One lane's attainment and latency percentiles in a run. Times are nanoseconds."""
    rows = [row for row in outcome.requests if row.lane == lane]
    missing = [NEVER] * (outcome.offered[lane] - len(rows))  # only where a run was interrupted
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


def has_tpot(row: RequestRow) -> bool:
    """Whether it has a time per token: two tokens or more, and not all at one moment.

    They come at one moment where static batching answers when the group ends.
    """
    return row.generated >= 2 and row.last_token > row.first_token


def engine_figures(outcome: Outcome) -> EngineFigures:
    """Throughput, use and waste of the engine in a run, over all lanes."""
    steps = outcome.steps
    served = [row for row in outcome.requests if row.finish in SERVED]
    refused, failed = (
        sum(row.finish is why for row in outcome.requests) for why in (Finish.REFUSED, Finish.ERROR)
    )
    seconds = outcome.nanoseconds / 1e9
    spent = sum(row.nanoseconds for row in steps)
    computed = sum(row.tokens + row.waste_tokens for row in steps)
    return EngineFigures(
        seconds=seconds,
        served=len(served),
        refused=refused,
        failed=failed,
        unfinished=sum(outcome.offered.values()) - len(served) - refused - failed,
        requests_per_second=_share(len(served), seconds),
        tokens_per_second=_share(answered_tokens(outcome.requests), seconds),
        slots=_share(sum(row.rows * row.nanoseconds for row in steps), spent),
        busy=_share(spent, outcome.nanoseconds),
        held=_share(sum(row.held_tokens for row in steps), computed),
        padding=_share(sum(row.padding_tokens for row in steps), computed),
        discarded=_share(sum(row.discarded for row in outcome.requests), computed),
        recomputed=_share(sum(row.recomputed for row in outcome.requests), computed),
        cached=_share(sum(row.cached for row in served), sum(row.prompt for row in served)),
        preemptions=sum(row.preemptions for row in outcome.requests),
        free_mean=_share(sum(row.free_blocks * row.nanoseconds for row in steps), spent),
        free_least=min((row.free_blocks for row in steps), default=0),
    )


def answered_tokens(rows: Sequence[RequestRow]) -> int:
    """Tokens of all answers."""
    return sum(row.generated for row in rows)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
