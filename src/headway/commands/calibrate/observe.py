"""Serve recorded traffic live, and collect the features and times of its steps."""

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
from headway.costing.request_spec import RequestSpec
from headway.costing.token_cost import TokenCost
from headway.engine import Executor
from headway.executor.forwarding import Forwarding
from headway.runs.run import Run
from headway.runs.shared_executor import SharedExecutor
from headway.runs.testbed import Testbed
from headway.traffic.endpoint import Endpoint
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.offered_traffic import offered_traffic
from headway.traffic.prompts import Prompts
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.selection import Demand, select_in_window
from headway.traffic.token_scale import TOKEN_SCALE
from headway.traffic.trace import read_shipped_trace
from headway.traffic.workload import with_prompts

LEARNED = "azure2023-conv"  # the trace that a cost model learns from
CHECKED = "azure2023-code"  # the trace that a cost model is checked against
LOAD = 0.5  # predicted device-seconds per second at full batches: busy, and hardly ever idle
BUSY, CALM = 12, 4  # alternating numbers of arrivals: at LOAD, and further apart
SLOWER = 4  # how many times further apart calm arrivals are, so that the engine also sleeps
CHUNKS = (32, 64, 128, 256)  # prompt tokens in a step
STRETCH = 8  # steps of one chunk size
FULL = 512  # prompt tokens of the step that gives a prompt token's price
WAKING = 3  # steps after a sleep that take longer because of it
FIRST = 20  # the first steps of a run, which are slow and left out


class Recorder(Forwarding):
    """An executor that forwards batches and keeps each step's batch and host time.

    batches: by step. hosts: nanoseconds of the host's part, by ticket.
    """

    def __init__(self, executor: Executor, gathering: Gathering) -> None:
        super().__init__(executor)
        self.gathering = gathering
        self.batches: dict[int, Batch] = {}
        self.hosts: dict[int, int] = {}

    def submit(self, batch: Batch) -> int:
        """Keep the batch, forward it, and return the ticket."""
        self.batches[batch.step] = batch
        return self.executor.submit(batch)

    def collect(self, ticket: int) -> Output:
        """Return a ticket's output, and keep its host time."""
        output = self.executor.collect(ticket)
        self.hosts[ticket] = output.host
        return output


@dataclass(slots=True)
class AlternatingChunks:
    """A chunk policy that changes the chunk size every STRETCH steps.

    A cost model fitted to one size predicts steps of another size a twentieth too long. The policy
    counts its calls, so each run needs a new one.
    """

    calls: int = 0

    def allow(self, view: View) -> Allowance:
        """The prompt tokens of the next step."""
        size = CHUNKS[self.calls // STRETCH % len(CHUNKS)]
        self.calls += 1
        return Allowance(size, split=True)


@dataclass(frozen=True, slots=True)
class LiveStep:
    """A step of live traffic: its features, its times and what came before it."""

    features: Features
    began: int  # nanoseconds from the start of the run
    nanoseconds: int  # from its start to its end
    executor: int  # of these: the executor's host part, building inputs and sampling
    deciding: int  # of these: the engine's decision, before it submits
    after: int  # nanoseconds until the next step began; -1: no sequence was left running
    slept: int  # nanoseconds of the engine's last sleep before this step
    since: int  # steps between that sleep and this step
    turned: bool  # whether this is the first step without prompts after one with prompts

    def predicted(self, cost: StepCost) -> int:
        """The step's nanoseconds by this cost model."""
        return cost.predict(self.features) + self.more(cost)

    def more(self, cost: StepCost) -> int:
        """The extra nanoseconds by this cost model, for a wake-up or the turn from prompts."""
        return cost.more(self.slept, self.since, self.turned)

    @property
    def is_plain(self) -> bool:
        """Whether no sleep or prompt before this step makes it longer."""
        return self.since >= WAKING and not self.turned


def later(step: LiveStep, seconds: float) -> LiveStep:
    """The same step, moved later in its run by this many seconds."""
    return replace(step, began=step.began + round(seconds * 1e9))


class ObservedRun:
    """A run whose steps are recorded for a cost model."""

    def __init__(self, testbed: Testbed, make_run: Callable[[Testbed], Run]) -> None:
        """make_run: makes the run on a given testbed."""
        testbed.executor.hand_over()
        self._recorder = Recorder(testbed.executor, testbed.gathering)
        self.run = make_run(replace(testbed, executor=SharedExecutor(self._recorder), depth=1))

    def steps(self) -> list[LiveStep]:
        """All steps in order, except the first FIRST."""
        return list(_steps(self.run.outcome().steps, self._recorder))[FIRST:]


def observed_trace(
    testbed: Testbed, trace: str, cost: StepCost, slots: int, seconds: float, seed: int
) -> ObservedRun:
    """A run of a trace's window under continuous batching, ready to be served.

    cost: the cost model that scales the window to LOAD. seconds: of the window.
    """
    specs = _specs(testbed, trace, cost, slots, seconds, seed)
    requests = with_prompts(specs, Prompts(testbed.text, testbed.block_size, seed))
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
    """Serve a trace's window and return its steps in order.

    watch: called with the share of the seconds that has passed.
    """
    observed = observed_trace(testbed, trace, cost, slots, seconds, seed)
    observed.run.serve(lambda progress: watch(min(1.0, progress.elapsed / (seconds * 1e9))))
    return observed.steps()


def _specs(
    testbed: Testbed, trace: str, cost: StepCost, slots: int, seconds: float, seed: int
) -> list[RequestSpec]:
    recorded = EndpointTraffic(
        Endpoint(trace, "recorded traffic", trace, 0),
        RecordedTrace(read_shipped_trace(trace), trace, TOKEN_SCALE),
    )
    window = round(seconds * 1e9)
    demand = Demand(load=LOAD)
    taken = select_in_window([recorded], demand, price(cost, slots), window, seed, testbed.context)
    busy = offered_traffic([recorded], taken, seed, testbed.context).specs
    return [spec for spec in with_calm_spells(busy) if spec.at < window]


def with_calm_spells(specs: Iterable[RequestSpec]) -> Iterator[RequestSpec]:
    """Stretch gaps: after every BUSY requests, the next CALM come SLOWER times as far apart."""
    at = before = 0
    for number, spec in enumerate(specs):
        is_calm = number % (BUSY + CALM) >= BUSY
        at += (spec.at - before) * (SLOWER if is_calm else 1)
        before = spec.at
        yield replace(spec, at=at)


def price(cost: StepCost, slots: int) -> TokenCost:
    """Nanoseconds per token: for prompts in full steps, and for answers in full batches.

    slots: rows of a full batch; their contexts are half of FULL.
    """
    prompt = row_features(0, FULL, logits=1)
    one = row_features(FULL // 2, 1, logits=1)
    full = sum([one] * slots, NONE)
    return TokenCost(
        (cost.predict(prompt) + cost.behind(prompt)) / FULL,
        (cost.predict(full) + cost.behind(full)) / slots,
    )


def _steps(rows: Iterable[StepRow], recorder: Recorder) -> Iterator[LiveStep]:
    """All steps but the last, since each needs the time to the next."""
    slept, since, prompted = 0, 0, False  # before the first
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
            slept=slept,
            since=since,
            turned=prompted and not features.prompts,
        )
        since += 1
        if not row.running and not row.waiting and gap > 0:
            slept, since = gap, 0
        prompted = features.prompts > 0
