"""Spans as a collector gets them, over OTLP's HTTP on loopback."""

import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from headway import __version__
from headway.errors import SettingError
from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.server.engine.handle import EngineState
from headway.server.observe.spans import Spans
from headway.server.observe.tracing import start_tracing
from tests.server.running_server import Permitted, fake, serving, until

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PHASES = ("queue", "prefill", "decode")
# Its first token has text; half a character would not be streamed.
LONG = {"prompt": [5, 6, 7], "max_tokens": 900, "ignore_eos": True, "stream": True, "seed": 1}


class Collector(HTTPServer):
    """Keeps the spans that come."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Taking)
        self.paths = []
        self.came = []  # as pairs of resource and span

    def calls(self):
        return [span for _, span in self.came if span.name not in PHASES]

    def below(self, call):
        """The span's phases, by their beginning."""
        mine = [span for _, span in self.came if span.parent_span_id == call.span_id]
        return sorted(mine, key=lambda span: (span.start_time_unix_nano, PHASES.index(span.name)))


class Taking(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.paths.append(self.path)
        for each in ExportTraceServiceRequest.FromString(body).resource_spans:
            spans = [span for scope in each.scope_spans for span in scope.spans]
            self.server.came += [(each.resource, span) for span in spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        pass


@contextmanager
def collecting(monkeypatch, config=None, engine=fake):
    """A traced server: its URL and front, and the collected spans when the block is left."""
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{collector.server_port}")
        try:
            with serving(config, engine) as (url, service):
                spans = start_tracing(service, 8_000)
                yield url, service, collector
            spans.close()
        finally:
            collector.shutdown()
            thread.join()


def said(span):
    """The attributes of a span or of a resource."""
    return {each.key: _value(each.value) for each in span.attributes}


def _value(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


def test_a_call_is_a_span_of_the_callers_trace_with_its_phases_below(monkeypatch):
    asked = {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 5,
        "temperature": 0.5,
        "seed": 7,
        "stream": True,
        "ignore_eos": True,
    }
    headers = {
        "traceparent": CALLER,
        "tracestate": "vendor=1",
        "X-Headway-Lane": "offline",
        "X-Request-Id": "mine",
    }
    began = clock.now() + clock.epoch()
    with collecting(monkeypatch) as (url, _, collector):
        httpx2.post(f"{url}/v1/chat/completions", json=asked, headers=headers)
    (call,) = collector.calls()
    assert set(collector.paths) == {"/v1/traces"}
    resource = said(collector.came[0][0])
    assert (resource["service.name"], resource["service.version"]) == ("headway", __version__)

    assert (call.name, call.kind) == ("chat headway-tiny", Span.SPAN_KIND_SERVER)
    assert call.trace_id.hex() == CALLER.split("-")[1]
    assert call.parent_span_id.hex() == CALLER.split("-")[2]
    assert call.trace_state == "vendor=1"
    assert call.status.code == Status.STATUS_CODE_UNSET
    attributes = said(call)
    assert attributes.pop("headway.device_seconds") > 0
    assert attributes.pop("gen_ai.response.id").startswith("chatcmpl-")
    prompt = attributes.pop("gen_ai.usage.input_tokens")
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "headway",
        "gen_ai.request.model": "headway-tiny",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "headway-tiny",
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "server.address": "127.0.0.1",
        "server.port": 8_000,
        "headway.lane": "offline",
        "headway.request_id": "mine",
        "headway.outcome": "good",
        "headway.relegated": False,
        "headway.preemptions": 0,
    }

    phases = collector.below(call)
    assert tuple(each.name for each in phases) == PHASES
    assert [said(each)["headway.tokens"] for each in phases] == [0, prompt, 5]
    times = [phases[0].start_time_unix_nano, *(each.end_time_unix_nano for each in phases)]
    assert times == sorted(times), "one ends where the next begins"
    assert [each.start_time_unix_nano for each in phases] == times[:-1]
    assert (call.start_time_unix_nano, call.end_time_unix_nano) == (times[0], times[-1])
    assert began <= times[0] and times[-1] <= clock.now() + clock.epoch()


def test_choices_share_a_span(monkeypatch):
    with collecting(monkeypatch) as (url, _, collector):
        asked = {"prompt": "x", "n": 2, "max_tokens": 3, "ignore_eos": True, "stop": ["zzz"]}
        httpx2.post(f"{url}/v1/completions", json=asked)
    (call,) = collector.calls()
    attributes = said(call)
    assert call.name == "text_completion headway-tiny" and not call.parent_span_id
    assert attributes["gen_ai.request.choice.count"] == 2
    assert attributes["gen_ai.request.stop_sequences"] == ["zzz"]
    assert attributes["gen_ai.response.finish_reasons"] == ["length", "length"]
    assert attributes["gen_ai.usage.output_tokens"] == 6
    choices = [said(each)["headway.choice"] for each in collector.below(call)]
    assert sorted(choices) == [0, 0, 0, 1, 1, 1]


def test_a_call_for_vectors_has_a_span_and_ends_as_any_other(monkeypatch):
    """What it uses is told without `completion_tokens`, and its end is not disturbed by that."""
    with collecting(monkeypatch) as (url, service, collector):
        answer = httpx2.post(f"{url}/v1/embeddings", json={"input": [[5, 6, 7], [8, 9]]})
        assert not service.open
    (call,) = collector.calls()
    attributes = said(call)
    assert call.name == "embeddings headway-tiny"
    assert attributes["gen_ai.usage.input_tokens"] == 5 == answer.json()["usage"]["prompt_tokens"]
    assert attributes["gen_ai.usage.output_tokens"] == 0
    assert attributes["headway.outcome"] == "good"
    assert [each.name for each in collector.below(call)] == ["queue", "queue", "prefill", "prefill"]


def test_a_client_that_left_is_told_apart_from_an_error(monkeypatch):
    """The rows of cancelled requests come after the client has gone."""
    executor = Permitted()
    with collecting(monkeypatch, engine=executor.engine) as (url, service, collector):
        executor.permits.release()
        with httpx2.stream("POST", f"{url}/v1/completions", json=LONG) as answer:
            next(answer.iter_lines())
        until(lambda: not service.model.admission.open)
        executor.permits.release()
        late = httpx2.post(
            f"{url}/v1/completions",
            json={"prompt": "x"},
            headers={"X-Headway-Timeout-Ms": "0.001"},
        )
        assert late.status_code == 408
    gone, late = sorted(collector.calls(), key=lambda span: span.start_time_unix_nano)
    attributes = said(gone)
    assert attributes["headway.outcome"] == "client_gone" and "error.type" not in attributes
    assert attributes["gen_ai.response.finish_reasons"] == ["error"]
    assert gone.status.code == Status.STATUS_CODE_UNSET
    assert tuple(each.name for each in collector.below(gone)) == PHASES

    assert said(late)["error.type"] == "deadline_exceeded"
    assert (
        late.status.code == Status.STATUS_CODE_ERROR and "not ended within" in late.status.message
    )
    assert [each.name for each in collector.below(late)] == ["queue"]


def test_a_refused_request_has_a_span(monkeypatch):
    config = ServerConfig(keys=[{"name": "app", "sha256": "0" * 64, "requests_per_minute": 1}])
    with collecting(monkeypatch, config) as (url, service, collector):
        monkeypatch.setattr(service.keys, "authenticate", lambda header: service.keys._known[0][1])
        for status in (200, 429):
            done = httpx2.post(f"{url}/v1/completions", json={"prompt": "x", "max_tokens": 1})
            assert done.status_code == status
    taken, refused = sorted(collector.calls(), key=lambda span: span.start_time_unix_nano)
    assert said(taken)["headway.outcome"] == "good"
    assert said(refused)["headway.outcome"] == "refused"
    assert said(refused)["headway.tenant"] == "app"
    assert said(refused)["error.type"] == "rate_limit_exceeded"
    assert refused.status.code == Status.STATUS_CODE_ERROR
    assert refused.end_time_unix_nano >= refused.start_time_unix_nano


def test_a_request_refused_for_its_lane_has_a_span(monkeypatch):
    config = ServerConfig(lanes={"chat": {"max_waiting": 1}}, engine={"slots": 1})
    executor = Permitted()
    with collecting(monkeypatch, config, executor.engine) as (url, service, collector):
        asked = {"prompt": [5], "max_tokens": 9, "ignore_eos": True}
        how = {"json": asked, "timeout": 60}

        def begin(opened):
            made = threading.Thread(target=httpx2.post, args=(f"{url}/v1/completions",), kwargs=how)
            made.start()
            until(lambda: service.model.admission.open == opened)
            executor.permits.release()
            return made

        threads = [begin(1)]
        until(lambda: service.model.engine.load.running)
        threads.append(begin(2))
        executor.permits.release(2)
        until(lambda: service.model.engine.load.lanes["chat"].waiting == 1)
        headers = {"traceparent": CALLER, "X-Request-Id": "mine"}
        refused = httpx2.post(f"{url}/v1/completions", json=asked, headers=headers)
        assert refused.status_code == 429
        executor.permits.release(100)
        for thread in threads:
            thread.join(30)
    (span,) = [each for each in collector.calls() if said(each)["headway.outcome"] == "refused"]
    assert said(span)["error.type"] == "lane_full" and said(span)["headway.lane"] == "chat"
    assert said(span)["headway.request_id"] == "mine" and span.name == "text_completion"
    assert span.trace_id.hex() == CALLER.split("-")[1]


def test_spans_do_not_wait_for_rows_of_an_engine_that_is_down(monkeypatch):
    executor = Permitted()
    with collecting(monkeypatch, engine=executor.engine) as (url, service, collector):
        executor.permits.release()
        with httpx2.stream("POST", f"{url}/v1/completions", json=LONG) as answer:
            lines = answer.iter_lines()  # kept, or the client would leave here
            next(lines)
            service.model.engine.state = EngineState.DOWN
        until(lambda: not service.model.admission.open)
        executor.permits.release()
    (call,) = collector.calls()
    assert collector.below(call) == []


def test_the_span_of_a_client_that_left_a_failing_engine_ends_when_the_next_is_ready(monkeypatch):
    executor = Permitted()
    with collecting(monkeypatch, engine=executor.engine) as (url, service, collector):
        executor.permits.release()
        with httpx2.stream("POST", f"{url}/v1/completions", json=LONG) as answer:
            lines = answer.iter_lines()  # kept, or the client would leave here
            next(lines)
            until(lambda: executor.asked == 2)  # else its cancel could come before the second step
        until(lambda: not service.model.admission.open)
        (spans,) = [each for each in service.model.admission.watchers if isinstance(each, Spans)]
        assert spans._open, "its row is still to come"
        spans.ready()
        assert not spans._open
        executor.permits.release()
    (call,) = collector.calls()
    assert said(call)["headway.outcome"] == "client_gone" and collector.below(call) == []


def test_an_attempt_that_lost_is_no_error(monkeypatch):
    config = ServerConfig(
        models=[{"name": "slow"}, {"name": "fast"}],
        routes={"vote": {"ensemble": ["slow", "fast"], "quorum": 1}},
    )
    executor = Permitted()

    def engine(entry):
        return executor.engine(entry) if entry.model.served_name == "slow" else fake(entry)

    with collecting(monkeypatch, config, engine) as (url, _, collector):
        asked = {"model": "vote", "prompt": [5, 6], "max_tokens": 2, "ignore_eos": True}
        assert httpx2.post(f"{url}/v1/completions", json=asked).json()["model"] == "fast"
        executor.permits.release(9)
    ends = {said(each)["headway.outcome"]: each for each in collector.calls()}
    assert set(ends) == {"good", "dropped"}
    assert ends["dropped"].status.code == Status.STATUS_CODE_UNSET
    assert "error.type" not in said(ends["dropped"])


def test_nothing_is_traced_without_an_endpoint(monkeypatch):
    service = None  # is not touched
    assert start_tracing(service, 0) is None
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert start_tracing(service, 0) is None


@pytest.mark.parametrize(
    "general, of_traces", [("", ""), ("grpc", "http/protobuf"), ("http/protobuf", "")]
)
def test_the_protocol_of_traces_overrides_the_general_one(monkeypatch, general, of_traces):
    """An empty variable counts as unset."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", general)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", of_traces)
    with collecting(monkeypatch) as (url, _, collector):
        httpx2.post(f"{url}/v1/completions", json={"prompt": [5, 6], "max_tokens": 1})
    assert len(collector.calls()) == 1


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "is grpc, and traces go out as http/protobuf"),
        (ENDPOINT, "http://127.0.0.1:1", r"pip install 'headway\[otel\]'"),
    ],
)
def test_tracing_that_cannot_work_is_reported_at_once(monkeypatch, name, value, said):
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)  # not installed
    with pytest.raises(SettingError, match=said):
        start_tracing(None, 0)
