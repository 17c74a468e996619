"""The metrics of one model (ModelMetrics): requests, tokens, steps, promises, its engine."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import Metric

from headway.core.batch import Event
from headway.core.lane import Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import Finish
from headway.server.answering.call import SLOW, Call
from headway.server.answering.refusal import Refusal
from headway.server.engine.device_work import DeviceWork
from headway.server.engine.handle import EngineHandle, EngineState
from headway.server.intake.leaving import ENDED_BY_SERVER
from headway.server.observe.metrics.batches import Batches
from headway.server.observe.metrics.device import Device
from headway.server.observe.metrics.edges import Edges
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.gauges import gauges
from headway.server.observe.metrics.keys import Keys
from headway.server.observe.metrics.promises import Promises
from headway.server.observe.metrics.requests import FAILED, Requests
from headway.server.observe.metrics.steps import Steps
from headway.server.observe.metrics.tokens import Silent, Tokens
from headway.server.protocol.problem import Problem

REFUSED = (429, 503)  # statuses after which a later retry may be accepted


class ModelMetrics:
    """The metrics of one model. It watches the intake, the ledger's rows and engine events."""

    def __init__(
        self,
        model: str,
        lanes: Sequence[Lane],
        engine: EngineHandle,
        block_size: int,
        now: Callable[[], int],
        slots: int = 0,
    ) -> None:
        """slots: sequences that may run at once, until the engine says how many."""
        names = [lane.name for lane in lanes]
        self._families = Families(model)
        self._lanes, self._engine, self._block_size, self._now = lanes, engine, block_size, now
        self._tokens, self._requests, self._steps = Tokens(names), Requests(names), Steps(names)
        self._keys, self._promises = Keys(), Promises(names)
        self._batches, self._device, self._edges = Batches(), Device(), Edges(names)
        self._tokens.steady = self._batches.gap
        self._slots = slots
        self._preemptions = 0  # by the present engine
        self._earlier_preemptions = 0  # by failed engines
        self._step_ended = 0  # end of the step whose events come next

    def ready(self) -> None:
        """An engine is ready: the first one, or the next one after a fault."""
        self._steps.begin(self._now())
        self._requests.no_more_rows()
        self._earlier_preemptions += self._preemptions
        self._preemptions = 0

    def lost(self) -> None:
        """The engine has failed for good."""
        self._requests.no_more_rows()

    def loaded(self, work: DeviceWork, load_ns: int) -> None:
        """The next engine's model is loaded. load_ns: how long that took."""
        self._device.loaded(work, load_ns)

    # -- the intake

    def refused_early(self, refusal: Refusal) -> None:
        """Count requests that were refused before their prompts were tokenized."""
        key = refusal.arrival.tenant.key
        self._count_refused(refusal.problem, key, refusal.lane, refusal.count)

    def _count_refused(self, problem: Problem, key: str, lane: str, count: int) -> None:
        self._keys.refused(key, count)
        self._requests.refused(lane, problem.code, count)

    def entered(self, call: Call) -> None:
        """Count the requests of a call that was accepted into its lane."""
        lane = call.routed.lane
        self._keys.accepted(call.routed.tenant.key, len(call.choices))
        has_grammar = bool(call.request.options.grammar)
        self._edges.entered(lane, has_grammar, self._now() - call.arrived)
        for each in call.requests:
            self._tokens.silent[each.id] = Silent(lane, each.arrived, len(each.prompt))

    def refused(self, call: Call, problem: Problem) -> None:
        """Count the requests of a call that was refused after its prompts were tokenized."""
        if problem.status in REFUSED:
            routed = call.routed
            self._count_refused(problem, routed.tenant.key, routed.lane, len(call.choices))

    def left(self, call: Call, open: Sequence[str]) -> None:
        """Count what became of a call. open: ids of its requests that did not end by themselves."""
        silent = [id for id in open if self._tokens.silent.pop(id, None)]
        reason = call.problem.code if call.problem else ""
        self._requests.abandoned(call.routed.lane, reason, len(silent))
        if reason == SLOW:
            self._edges.cut(call.routed.lane)
        # A request whose row came already, ahead of the step's events, is counted by that row.
        lane, rowless = call.routed.lane, [id for id in open if id not in call.rows]
        if reason in FAILED:
            self._requests.failed(lane, rowless)
        else:
            self._requests.leaving(lane, ENDED_BY_SERVER.get(reason, Finish.CANCELLED), rowless)

    def settled(self, call: Call, begun: int) -> None:
        """Count the tokens of a call that is over. begun: prompt tokens of its begun prompts."""
        self._keys.left(call.routed.tenant.key, begun, call.tokens[1])

    def sent(self, lane: str, waited: int) -> None:
        """Count a stream that has ended. waited: nanoseconds for which it waited for its client."""
        self._edges.sent(lane, waited)

    # -- the engine

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        """Count the ledger's rows: of steps, and of requests that ended in them."""
        load = self._engine.load
        self._step_ended = steps[-1].began + steps[-1].nanoseconds if steps else load.now
        self._steps.add(steps, load)
        self._batches.add(steps)
        self._device.add(steps)
        self._preemptions = load.preemptions
        for row in requests:
            self._requests.ended(row)
            self._promises.ended(row)
            if row.finish is Finish.COMPUTED:  # the request ends without a token
                self._tokens.prompted += row.prompt

    def events(self, events: list[Event]) -> None:
        """Count the events of a step. They come after its rows."""
        self._tokens.count(events, self._step_ended)

    # -- Prometheus

    def collect(self) -> Iterator[Metric]:
        """All metric families of the model, as they are now."""
        families, load, now = self._families, self._engine.load, self._now()
        state = self._engine.state
        busy = load.running > 0 or any(lane.waiting for lane in load.lanes.values())
        until = 0 if state in (EngineState.DOWN, EngineState.LOADING) else now
        known = {name: each.lane for name, each in load.lanes.items()}  # as now in force
        lanes = [known.get(lane.name, lane) for lane in self._lanes]
        yield from gauges(families, load, state, lanes, self._block_size, now)
        slots = {(): load.slots or self._slots}  # of the version in force
        yield families.gauge("headway_batch_slots", "Sequences that may run at once.", slots)
        yield families.gauge(
            "headway_journal_stopped",
            "1 if the journal could not be written and has ended; the log says why. Else 0.",
            {(): int(bool(self._engine.journal))},
        )
        preempted = {(): self._earlier_preemptions + self._preemptions}
        yield families.counter(
            "vllm:num_preemptions", "How often a sequence was preempted.", preempted
        )
        yield from self._keys.collect(families)
        yield from self._edges.collect(families)
        yield from self._batches.collect(families)
        yield from self._device.collect(families)
        yield from self._tokens.collect(families)
        yield from self._requests.collect(families)
        yield from self._promises.collect(families)
        yield from self._steps.collect(families, self._requests.wasted, until, busy=busy)
