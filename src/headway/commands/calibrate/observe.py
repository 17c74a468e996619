"""Recorded traffic, served live, and what a cost model would have to know of each step."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from headway.core.batch import Batch, Output
from headway.core.cost.features import NONE, Features, batch_features, row_features
from headway.core.cost.gathering import Gathering
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.ledger import StepRow
from headway.core.policies.chunk import Allowance
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.view import View
from headway.costing.token_cost import RequestSpec, TokenCost
from headway.engine import Executor
from headway.runs.run import Run
from headway.runs.testbed import SharedExecutor, Testbed
from headway.traffic.endpoint import Endpoint
from headway.traffic.endpoint_traffic import EndpointTraffic, RecordedTrace
from headway.traffic.selection import Demand, offered_traffic, select_in_window
from headway.traffic.trace import read_shipped_trace
from headway.traffic.workload import TOKEN_SCALE, Prompts, with_prompts

LEARNED = "azure2023-conv"  # the trace that a cost model learns from
CHECKED = "azure2023-code"  # and the one that it is held against
LOAD = 0.5  # predicted device-seconds per second at full batches: busy, and hardly ever idle
BUSY, CALM = 12, 4  # arrivals, in turn: at that load, and
SLOWER = 4  # times as far apart, so that the engine sleeps too
CHUNKS = (32, 64, 128, 256)  # prompt tokens in a step
STRETCH = 8  # steps, after which their number is another
FULL = 512  # prompt tokens of the step whose price is that of a prompt token
FIRST = 20  # steps of a run that are not counted: its first are slow


class Recorder:
    """Passes batches on, and keeps what a step's row does not say of them."""

    def __init__(self, executor: Executor, gathering: Gathering) -> None:
        self.executor, self.gathering = executor, gathering
        self.batches: dict[int, Batch] = {}
        self.hosts: dict[int, int] = {}

    def submit(self, batch: Batch) -> int:
        self.batches[batch.step] = batch
        return self.executor.submit(batch)

    def collect(self, ticket: int) -> Output:
        output = self.executor.collect(ticket)
        self.hosts[ticket] = output.host
        return output


@dataclass(slots=True)
class AlternatingChunks:
    """Chunks of several sizes, each for a stretch of steps: a cost model that has met one size
    foretells steps of another a twentieth too long. For one run, because it counts."""

    asked: int = 0  # times

    def allow(self, view: View) -> Allowance:
        size = CHUNKS[self.asked // STRETCH % len(CHUNKS)]
        self.asked += 1
        return Allowance(size, split=True)


@dataclass(frozen=True, slots=True)
class LiveStep:
    features: Features
    began: int  # nanoseconds from the run's beginning
    nanoseconds: int
    executor: int  # of them: the executor's host, building inputs and sampling
    deciding: int  # of them: the engine, before it submits
    after: int  # until the next began; -1: the engine had nothing to do then
    woken: bool  # the engine had slept before it
    turned: bool  # it had not, and the step before had prompts, which this one has not

    def predicted(self, cost: StepCost) -> int:
        return cost.predict(self.features) + self.more(cost)

    def more(self, cost: StepCost) -> int:
        """Nanoseconds that it takes for what was before it."""
        return cost.wake if self.woken else cost.turn if self.turned else 0

    @property
    def is_plain(self) -> bool:
        return not self.woken and not self.turned


class ObservedRun:
    """A run, and its steps with what a cost model has to know of them."""

    def __init__(self, testbed: Testbed, made: Callable[[Testbed], Run]) -> None:
        """made: the run, on the testbed that it is given."""
        testbed.executor.hand_over()
        self._recorder = Recorder(testbed.executor, testbed.gathering)
        self.run = made(replace(testbed, executor=SharedExecutor(self._recorder)))

    def steps(self) -> list[LiveStep]:
        """But the FIRST, in order."""
        return list(_steps(self.run.outcome().steps, self._recorder))[FIRST:]


def observed_trace(
    testbed: Testbed, trace: str, cost: StepCost, slots: int, seconds: float, seed: int
) -> ObservedRun:
    """A trace's window under continuous batching, to be served."""
    asks = _asks(testbed, trace, cost, slots, seconds, seed)
    requests = with_prompts(asks, Prompts(testbed.text, testbed.block_size, seed))
    policies = Policies(
        Continuous(slots), chunk=AlternatingChunks(), step_tokens=slots + max(CHUNKS)
    )
    limit = round(seconds * 1e9)
    return ObservedRun(
        testbed, lambda testbed: Run(testbed, policies, [Lane(trace)], requests, limit)
    )


def serve_trace(
    testbed: Testbed,
    trace: str,
    cost: StepCost,
    slots: int,
    seconds: float,
    seed: int,
    watch: Callable[[float], object],
) -> list[LiveStep]:
    """The steps of a trace's window, in order."""
    seen = observed_trace(testbed, trace, cost, slots, seconds, seed)
    seen.run.serve(lambda progress: watch(min(1.0, progress.elapsed / (seconds * 1e9))))
    return seen.steps()


def _asks(
    testbed: Testbed, trace: str, cost: StepCost, slots: int, seconds: float, seed: int
) -> list[RequestSpec]:
    asked = EndpointTraffic(
        Endpoint(trace, "recorded traffic", trace, 0),
        RecordedTrace(read_shipped_trace(trace), trace, TOKEN_SCALE),
    )
    window = round(seconds * 1e9)
    demand = Demand(load=LOAD)
    taken = select_in_window([asked], demand, price(cost, slots), window, seed, testbed.context)
    busy = offered_traffic([asked], taken, seed, testbed.context).specs
    return [ask for ask in with_calm_spells(busy) if ask.at < window]


def with_calm_spells(asks: Iterable[RequestSpec]) -> Iterator[RequestSpec]:
    """CALM of them, behind BUSY others, come SLOWER times as far apart as they would."""
    at = before = 0
    for number, ask in enumerate(asks):
        is_calm = number % (BUSY + CALM) >= BUSY
        at += (ask.at - before) * (SLOWER if is_calm else 1)
        before = ask.at
        yield replace(ask, at=at)


def price(cost: StepCost, slots: int) -> TokenCost:
    """Of a token, in steps full of prompts and in full batches of sequences half a prompt long."""
    prompt = row_features(0, FULL, logits=1)
    one = row_features(FULL // 2, 1, logits=1)
    full = sum([one] * slots, NONE)
    return TokenCost(
        (cost.predict(prompt) + cost.behind(prompt)) / FULL,
        (cost.predict(full) + cost.behind(full)) / slots,
    )


def _steps(rows: Iterable[StepRow], recorder: Recorder) -> Iterator[LiveStep]:
    """All but the last, behind which nothing begins."""
    idle, prompted = True, False  # before the first
    for row, following in pairwise(rows):
        executor = recorder.hosts[row.step]
        features = batch_features(recorder.batches[row.step], recorder.gathering)
        gap = following.began - row.began - row.nanoseconds
        yield LiveStep(
            features=features,
            began=row.began,
            nanoseconds=row.nanoseconds,
            executor=executor,
            deciding=row.host - executor,
            after=gap if row.running else -1,
            woken=idle,
            turned=prompted and not idle and not features.prompts,
        )
        idle = not row.running and not row.waiting and gap > 0
        prompted = features.prompts > 0
