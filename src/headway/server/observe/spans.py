"""A span for each call, with child spans for the phases that the ledger recorded:

    chat headway-tiny          arrival to the end of its last choice
    |-- queue | prefill | decode      of each choice: arrival, first scheduled, first, last token

Attributes are those of OpenTelemetry's GenAI conventions (in development; as of November 2026)
and headway's own. The conventions are for clients; headway is the answering side, so the kind is
SERVER. Spans contain no prompts and no answers.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from headway import __version__
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER
from headway.server import clock
from headway.server.answering.call import DROPPED, Call
from headway.server.answering.choice import REASONS
from headway.server.answering.refusal import Refusal
from headway.server.config.tenant import Tenant
from headway.server.engine.handle import EngineState
from headway.server.intake.model import Model
from headway.server.intake.service import Service
from headway.server.protocol.problem import Problem
from headway.server.protocol.request import ApiRequest

PATIENCE = 5.0  # seconds for the last spans to go out
# Neither the server nor the engine has failed: the client, or a route, wanted no more.
UNWANTED = frozenset({"client_gone", "cancelled", "superseded", DROPPED})

Attributes = dict[str, AttributeValue]


@dataclass(slots=True)
class CallTrace:
    """A call whose trace is not written yet."""

    call: Call
    parent: Context  # the caller's span, if the call has one
    epoch: int  # zero of the server's clock, in nanoseconds since 1970
    rows: dict[str, RequestRow] = field(default_factory=dict)
    over: bool = False  # the call has ended; rows of requests that it cancelled may still come

    @property
    def is_whole(self) -> bool:
        return self.over and len(self.rows) == len(self.call.choices)


class Tracing:
    """The traces of a server's calls: Spans for each model, and one exporter."""

    def __init__(self, processor: SpanProcessor, service: Service, port: int) -> None:
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        tracer = self._provider.get_tracer("headway", __version__)
        host = service.config.server.host
        server: Attributes = {"server.address": host, "server.port": port}
        self.models = [Spans(tracer, model, server) for model in service.models]
        for model, spans in zip(service.models, self.models, strict=True):
            model.watch(spans)
        if self.models:
            service.unrouted.append(self.models[0].refused_early)

    def close(self) -> None:
        """Write the open traces and send everything, within PATIENCE seconds."""
        for each in self.models:
            each.close()
        # The exporter retries an unreachable endpoint for half a minute.
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(PATIENCE)


class Spans:
    """A Watcher that writes a trace of each call of a model."""

    def __init__(self, tracer: Tracer, model: Model, server: Attributes) -> None:
        self._tracer, self._server = tracer, server
        self._engine, self._model = model.engine, model.name
        self._open: dict[str, CallTrace] = {}  # by id of each request

    def entered(self, call: Call) -> None:
        self._open.update(dict.fromkeys(call.choices, _trace(call)))

    def refused(self, call: Call, problem: Problem) -> None:
        trace = _trace(call)
        span = self._start(trace)
        _ended(span, problem, "refused")
        span.end(trace.epoch + clock.now())

    def refused_early(self, refusal: Refusal) -> None:
        epoch = clock.epoch()
        attributes: Attributes = self._server | {"gen_ai.operation.name": refusal.operation}
        if refusal.lane:
            attributes["headway.lane"] = refusal.lane
        attributes |= _known(
            refusal.arrival.tenant, refusal.arrival.headers.get("x-request-id", "")
        )
        parent = _parent(refusal.arrival.headers)
        at = epoch + refusal.arrival.at
        span = self._tracer.start_span(
            refusal.operation, parent, SpanKind.SERVER, attributes, start_time=at
        )
        _ended(span, refusal.problem, "refused")
        span.end(epoch + clock.now())

    def left(self, call: Call, open: Sequence[str]) -> None:
        if trace := self._open.get(next(iter(call.choices))):
            trace.over = True
            if trace.is_whole or self._engine.state is EngineState.DOWN:  # it sends no more rows
                self._say(trace)

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        for row in requests:
            if trace := self._open.get(row.id):
                trace.rows[row.id] = row
                if trace.is_whole:
                    self._say(trace)

    def ready(self) -> None:
        """A new engine is ready: write the traces that waited for rows of the one before it."""
        self.lost()

    def lost(self) -> None:
        for trace in [trace for trace in self._open.values() if trace.over]:
            if next(iter(trace.call.choices)) in self._open:  # the list has a trace once per choice
                self._say(trace)

    def close(self) -> None:
        """Write the open traces."""
        while self._open:
            self._say(next(iter(self._open.values())))

    # -- a call's spans

    def _start(self, trace: CallTrace) -> Span:
        call = trace.call
        attributes = _call_attributes(call, self._model) | self._server
        name = f"{call.routed.operation} {call.request.model or self._model}"
        at = trace.epoch + call.arrived
        return self._tracer.start_span(
            name, trace.parent, SpanKind.SERVER, attributes, start_time=at
        )

    def _say(self, trace: CallTrace) -> None:
        call, rows = trace.call, trace.rows
        for id in call.choices:
            self._open.pop(id, None)
        span = self._start(trace)
        if span.is_recording():
            span.set_attributes(_answered(call, self._model, rows))
            self._judge(span, trace)
            below = set_span_in_context(span, trace.parent)
            for index, id in enumerate(call.choices):
                if id in rows:
                    self._phases(below, rows[id], trace.epoch, index)
        ended = max([row.finished for row in rows.values()], default=clock.now())
        span.end(trace.epoch + ended)

    def _judge(self, span: Span, trace: CallTrace) -> None:
        if problem := trace.call.problem:
            _ended(span, problem, problem.code)
        else:
            good = all(row.good for row in trace.rows.values())
            span.set_attribute("headway.outcome", "good" if good else "late")

    def _phases(self, below: Context, row: RequestRow, epoch: int, choice: int) -> None:
        for name, began, ended, tokens in _phases(row):
            own: Attributes = {"headway.tokens": tokens, "headway.choice": choice}
            at = epoch + began
            span = self._tracer.start_span(name, below, attributes=own, start_time=at)
            span.end(epoch + ended)


def _trace(call: Call) -> CallTrace:
    return CallTrace(call, _parent(call.routed.arrival.headers), clock.epoch())


def _parent(headers: Mapping[str, str]) -> Context:
    """The context of the caller's span, from the headers; empty if they name none."""
    return TraceContextTextMapPropagator().extract(headers, Context())


def _known(tenant: Tenant, request_id: str) -> Attributes:
    attributes = {"headway.tenant": tenant.name, "headway.request_id": request_id}
    return {name: value for name, value in attributes.items() if value}


def _resource() -> Resource:
    """The resource: `headway`, or what OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say."""
    found = Resource.create({SERVICE_VERSION: __version__})
    if str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        found = found.merge(Resource({SERVICE_NAME: "headway"}))
    return found


def _ended(span: Span, problem: Problem, outcome: str) -> None:
    """Mark a span that ended with a problem."""
    span.set_attribute("headway.outcome", outcome)
    if problem.code not in UNWANTED:
        span.set_attribute("error.type", problem.code or str(problem.status))
        span.set_status(Status(StatusCode.ERROR, str(problem)))


def _phases(row: RequestRow) -> Iterator[tuple[str, int, int, int]]:
    """The phases that a request reached: name, begin, end and tokens."""
    began = min(row.first_scheduled, row.finished)
    yield "queue", row.arrived, began, 0
    if row.first_scheduled != NEVER:
        first = min(row.first_token, row.finished)
        yield "prefill", began, first, row.prompt - row.cached
        if row.first_token != NEVER:
            yield "decode", first, row.last_token, row.generated


def _call_attributes(call: Call, model: str) -> Attributes:
    """Attributes that are known when the span begins, so that samplers can read them."""
    routed, request = call.routed, call.request
    attributes: Attributes = {
        "gen_ai.operation.name": call.routed.operation,
        "gen_ai.provider.name": "headway",
        "gen_ai.request.model": request.model or model,
        "headway.lane": routed.lane,
    }
    return attributes | _known(routed.tenant, routed.request_id) | _options(request)


def _options(request: ApiRequest) -> Attributes:
    """The request's options; those that are off or left to the server's default are left out."""
    options = request.options
    values: dict[str, AttributeValue | None] = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "max_tokens": options.max_tokens,
        "top_k": options.top_k or None,
        "seed": options.seed,
        "frequency_penalty": options.frequency_penalty or None,
        "presence_penalty": options.presence_penalty or None,
        "stop_sequences": options.stop or None,
        "choice.count": options.n if options.n > 1 else None,
        "stream": request.stream or None,
    }
    return {f"gen_ai.request.{name}": value for name, value in values.items() if value is not None}


def _answered(call: Call, model: str, rows: dict[str, RequestRow]) -> Attributes:
    ends = [each.answer.finish for each in call.choices.values()]
    tokens_in, tokens_out = call.tokens  # not `usage`, which differs by operation
    return {
        "gen_ai.response.id": call.id,
        "gen_ai.response.model": model,
        "gen_ai.response.finish_reasons": [REASONS.get(each, "error") for each in ends],
        "gen_ai.usage.input_tokens": tokens_in,
        "gen_ai.usage.output_tokens": tokens_out,
        "gen_ai.usage.cache_read.input_tokens": call.cached,
        **{f"headway.eta_{name}_ms": value for name, value in call.eta.ms.items()},
        "headway.relegated": call.relegated,
        "headway.preemptions": sum([row.preemptions for row in rows.values()]),
        "headway.device_seconds": sum([row.nanoseconds for row in rows.values()]) / 1e9,
    }
