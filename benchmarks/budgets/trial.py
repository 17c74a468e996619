"""One window of a mix at one load, served by several variants: the same requests for each."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from benchmarks.budgets.mixes import MIXES, SECOND, SEED, Mix, Place, Source
from benchmarks.budgets.variants import Variant
from headway.core.cost.step_cost import Residuals
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER, Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.sim.inbox import arrivals
from headway.sim.simulate import simulate


@dataclass(frozen=True, slots=True)
class Score:
    """What a run came to."""

    good: Mapping[str, int]  # requests inside their budget, by lane that has one
    offered: Mapping[str, int]  # by lane that has one
    untimed: float = 0.0  # tokens a second of lanes without a budget, until their last
    preempted: int = 0

    @property
    def share(self) -> float:
        """Of all requests with a budget, those inside it."""
        return sum(self.good.values()) / sum(self.offered.values())

    @property
    def lanes(self) -> dict[str, float]:
        """The share of each lane."""
        return {lane: self.good.get(lane, 0) / count for lane, count in self.offered.items()}


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does in one piece."""

    mix: str
    source: Source
    load: float
    variants: tuple[Variant, ...]
    place: Place | None = None  # None: the data sheet's accelerator


@dataclass(frozen=True, slots=True)
class Done:
    """A job, and a score for each of its variants by name."""

    job: Job
    scores: Mapping[str, Score]


class Rows(Protocol):
    """What a run leaves: a row of each request and of each step."""

    @property
    def requests(self) -> Sequence[RequestRow]: ...

    @property
    def steps(self) -> Sequence[StepRow]: ...


Serve = Callable[[Mix, Sequence[Request], Variant], Rows]  # to the end


def simulated(mix: Mix, requests: Sequence[Request], variant: Variant) -> Rows:
    """In virtual time."""
    priced = mix.calibration()
    settings = Settings(
        priced.num_blocks,
        priced.block_size,
        mix.lanes,
        variant.policies,
        priced.context,
        priced.cost,
    )
    scheduler = Scheduler(settings)
    each = Residuals((variant.slowness,))
    spent = replace(priced.cost, residuals=(each, each))
    simulate(scheduler, arrivals(requests), spent, seed=SEED)
    scheduler.check()
    return scheduler.ledger


def work(job: Job) -> Done:
    mix = MIXES[job.mix].on(job.place)
    offered = mix.requests(job.source, job.load)
    return Done(job, {each.name: score(mix, offered, each) for each in job.variants})


def score(
    mix: Mix, offered: Sequence[Request], variant: Variant, serve: Serve = simulated
) -> Score:
    asked = impatient(mix, offered, variant.timeout) if variant.timeout else offered
    rows = serve(mix, asked, variant).requests
    assert len(rows) == len(offered), "every request leaves a row"
    timed = [row for row in rows if row.budget.is_timed]
    return Score(
        good=dict(Counter(row.lane for row in timed if row.good)),
        offered=dict(Counter(row.lane for row in timed)),
        untimed=token_rate([row for row in rows if not row.budget.is_timed]),
        preempted=sum(row.preemptions for row in rows),
    )


def impatient(mix: Mix, offered: Sequence[Request], share: float) -> list[Request]:
    """The same requests; each is dropped when it has queued for this share of its TTFT budget."""
    limits = {lane.name: lane.budget.ttft for lane in mix.lanes}
    return [
        replace(each, start_by=each.arrived + int(share * limit))
        if (limit := limits[each.lane]) != NEVER
        else each
        for each in offered
    ]


def token_rate(rows: Sequence[RequestRow]) -> float:
    """Answer tokens a second, from the beginning of the run to the end of the last answer."""
    if not rows:
        return 0.0
    return sum(row.generated for row in rows) * SECOND / max(row.finished for row in rows)
