"""The log: what a line has, what it cannot have, and that it delays no one."""

import asyncio
import json
import logging
import os
from hashlib import sha256
from types import SimpleNamespace

import httpx2
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser
from rich.console import Console

from headway.server.answering.choice import Choice
from headway.server.config.config import ServerConfig
from headway.server.config.sections.logs import LogSettings
from headway.server.engine.handle import EngineState
from headway.server.observe import access, logs
from headway.server.observe.access import AccessLog
from headway.server.observe.logs import Logs, bridged, logger
from tests.server.asgi_client import LONG, Client, inside, paced
from tests.server.asgi_client import until as turns
from tests.server.running_server import hopeless

EVIL = "a\nrequest status=200\r\x1b[2J\u2028\u202e\x9b"


@pytest.fixture
def pipe():
    """The reading end of a pipe, and a console that writes to the other end."""
    ours, theirs = os.pipe()
    with open(theirs, "w") as file, open(ours, "rb", buffering=0) as reader:
        yield reader, Console(file=file, width=80)


def written(pipe, log, **settings):
    reader, console = pipe
    made = Logs(LogSettings(**settings), console)
    log(made)
    made.close()
    console.file.close()
    return reader.readall().decode()


@pytest.mark.parametrize("format", ["json", "console"])
def test_client_data_cannot_begin_a_log_line_or_control_a_terminal(pipe, format):
    def log(made):
        made.log.info("request", id=EVIL, path=EVIL)
        made.log.info(EVIL, source="engine")
        try:
            raise KeyError(EVIL + "\nrequest status=200")
        except KeyError:
            made.log.exception("fault", id=EVIL)

    said = written(pipe, log, format=format)
    assert not [each for each in said if not each.isprintable() and each != "\n"]
    heads = [line for line in said.split("\n") if line and not line.startswith("    ")]
    assert len(heads) == 3
    if format == "json":
        parsed = [json.loads(line) for line in heads]
        assert [each["level"] for each in parsed] == ["info", "info", "error"]
        assert parsed[0]["id"] == EVIL and "KeyError" in parsed[2]["exception"]


NAMES = st.sampled_from(["path", "ms", "id", "source", "exception", "logger", "stack"])
TEXTS = st.text() | st.sampled_from(["a b", "a=b", "", '"', EVIL, "x" * 5_000])


@given(event=TEXTS, values=st.dictionaries(NAMES, TEXTS | st.integers() | st.floats() | st.none()))
def test_text_without_colours_is_as_structlog_writes_it(event, values):
    if not {"exception", "logger", "stack"}.isdisjoint(values):
        values = {name: str(value) for name, value in values.items()}
    line = {**values, "event": event, "level": "info", "timestamp": "2026-11-25T08:00:00.000Z"}
    first = {name: line[name] for name in logs.FIRST}
    escaped = {name: logs._escape_value(name, each) for name, each in logs._cut(line).items()}
    theirs = structlog.dev.ConsoleRenderer(
        colors=False, pad_event_to=0, pad_level=False, sort_keys=False
    )(None, "", {**escaped})
    assert logs.renderer("console", False)({**line, **first}) == f"{theirs}\n"


def test_a_logged_value_has_a_bounded_length(pipe):
    said = written(pipe, lambda made: made.log.info("request", path="p" * 100_000))
    assert len(said) < 5_000


def test_lines_that_are_not_read_are_dropped_and_counted(pipe, monkeypatch):
    """With a full pipe, the thread that logs goes on."""
    monkeypatch.setattr(logs, "MAX_QUEUED", 50)
    reader, console = pipe
    made = Logs(LogSettings(), console)
    for _ in range(3_000):
        made.log.info("x" * 200)
    assert made._dropped and made._queue.qsize() <= 50
    said = b""
    while b"log lines dropped" not in said:
        said += os.read(reader.fileno(), 65_536)
        made.log.info("more")
    dropped = int(said.split(b"dropped")[1].split(b"count=")[1].split()[0])
    assert 0 < dropped < 3_000
    console.file.close()
    reader.close()
    made.close()


def test_a_closed_output_is_not_an_error(pipe):
    reader, console = pipe
    made = Logs(LogSettings(), console)
    reader.close()
    for _ in range(3):
        made.log.info("nobody reads it")
    made.close()
    assert not made._writer.is_alive() and made._unwritten == 3


def test_a_level_hides_lower_ones_and_libraries_are_logged():
    lines = []
    log = logger("warning", lines.append)
    log.info("no")
    with bridged(log, "warning"):
        logging.getLogger("some.library").info("no")
        logging.getLogger("uvicorn.error").warning("careful: %d", 3)
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("asyncio").exception("a task has failed")
    logging.getLogger("some.library").handlers.clear()
    assert [line["event"] for line in lines] == ["careful: 3", "a task has failed"]
    assert lines[0]["source"] == "uvicorn.error" and "ValueError: why" in lines[1]["exception"]


class Unprintable:
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(("number", "level"), [(35, "warning"), (45, "error"), (99, "critical")])
def test_a_level_that_only_a_library_has_is_logged_as_the_next_lower_one(number, level):
    lines = []
    with bridged(logger("info", lines.append), "info"):
        logging.getLogger("some.library").log(number, "its own")
    assert [(line["event"], line["level"]) for line in lines] == [("its own", level)]


@pytest.mark.parametrize("said", [("%d files", "many"), ("%s", Unprintable()), (Unprintable(),)])
def test_a_line_that_cannot_be_made_does_not_fail_the_code_that_logs(monkeypatch, said):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's handlers raise
    lines = []
    with bridged(logger("info", lines.append), "info"):
        logging.getLogger("some.library").warning(*said)
    (line,) = lines
    assert line["event"] == "a library's line cannot be logged" and "Error" in line["exception"]
    assert line["source"] == "some.library" and line["at"].partition(":")[0] == __file__


def test_callers_cannot_fill_the_log_with_malformed_forms():
    lines = []
    with bridged(logger("warning", lines.append), "warning"):
        with pytest.raises(FormParserError):
            MultipartParser(b"b").write(b"--?")
        logging.getLogger("some.library").warning("careful")
    assert [line["event"] for line in lines] == ["careful"]


# -- the access log

KEY = "hw-" + "k" * 43
KEYS = [{"name": "ci", "sha256": sha256(KEY.encode()).hexdigest()}]
BEARER = {"authorization": f"Bearer {KEY}"}
SECRET = "the prompt is a secret"


def played(scene, config=None, level="info", requests=True, engine=paced):
    """The log lines of the requests made in `scene(client, front)` over ASGI."""
    lines = []

    async def play(app, service, rows):
        wrapped = AccessLog(app, logger(level, lines.append), requests)
        transport = httpx2.ASGITransport(app=wrapped)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await scene(client, service)

    inside(config or ServerConfig(), engine, play)
    return lines


def test_a_relegated_request_is_logged_as_such():
    async def scene(client, service):
        for lane in ("chat", "bulk"):
            headers = {"x-headway-lane": lane}
            await client.post("/v1/completions", json={"prompt": "x"}, headers=headers)

    lanes = {"chat": {"ttft": "1s"}, "bulk": {}}
    config = ServerConfig(engine={"cost": "cost.json"}, lanes=lanes)
    late, other = played(scene, config, engine=hopeless)
    assert late["status"] == other["status"] == 200
    assert late["relegated"] is True and "relegated" not in other
    assert 50_000 < other["eta_first_ms"] < other["eta_done_ms"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_is_logged_with_its_ids_key_lane_tokens_and_times(stream):
    heard = []

    async def scene(client, service):
        asked = {"prompt": SECRET, "max_tokens": 5, "ignore_eos": True, "stream": stream}
        headers = BEARER | {"x-request-id": "mine", "x-headway-lane": "offline"}
        answer = await client.post("/v1/completions?q=1", json=asked, headers=headers)
        heard.append(answer.text)

    (line,) = played(scene, ServerConfig(keys=KEYS))
    assert (line["event"], line["level"]) == ("request", "info") and line["timestamp"]
    assert (line["method"], line["path"], line["status"]) == ("POST", "/v1/completions", 200)
    assert (line["id"], line["key"], line["lane"]) == ("mine", "ci", "offline")
    assert line["answer"] in heard[0] and line["client"] == "127.0.0.1"
    assert line["tokens_in"] > 3 and line["tokens_out"] == 5
    assert 0 < line["ttft_ms"] <= line["ms"]
    assert SECRET not in str(line) and KEY not in str(line) and "code" not in line


def test_refused_requests_are_logged_with_their_codes_and_keys():
    async def scene(client, service):
        await client.post("/v1/completions", json={"prompt": "x"}, headers={"x-request-id": "a"})
        wrong = {"prompt": "x", "temperatur": 1}
        await client.post("/v1/completions", json=wrong, headers=BEARER)
        await client.get("/nothing")

    told = [
        (line["status"], line.get("code"), line.get("key"))
        for line in played(scene, ServerConfig(keys=KEYS))
    ]
    assert told == [
        (401, "invalid_api_key", None),
        (400, "unknown_parameter", "ci"),
        (404, "unknown_url", None),
    ]


def test_a_request_for_a_foreign_host_is_logged_with_its_code():
    async def scene(client, service):
        await client.get("/v1/models", headers={"host": "evil.example"})

    (line,) = played(scene)
    assert (line["status"], line["code"]) == (403, "host_not_allowed")


def test_an_internal_error_is_logged_with_a_traceback_and_the_clients_id(monkeypatch):
    monkeypatch.setattr("headway.server.http.routes.state._model", lambda *about: 1 // 0)
    heard = []

    async def scene(client, service):
        heard.append(await client.get("/v1/models"))

    fault, request = played(scene)
    assert fault["event"] == "fault" and "ZeroDivisionError" in fault["exception"]
    assert "routes/state.py" in fault["exception"] and request["status"] == 500
    assert heard[0].headers["x-request-id"] == fault["id"] == request["id"]
    assert [line["event"] for line in played(scene, requests=False)] == ["fault"]


def test_a_client_that_leaves_its_stream_is_logged_with_what_it_got():
    lines = []

    async def play(app, service, rows):
        goes = Client(AccessLog(app, logger("info", lines.append)), LONG | {"stream": True})
        await turns(lambda: goes.said)
        goes.left.set()
        await goes.task

    inside(ServerConfig(), paced, play)
    (line,) = lines
    assert (line["status"], line["code"]) == (200, "client_gone") and line["tokens_out"] > 0


def test_a_storm_of_refusals_does_not_fill_the_log(monkeypatch):
    at = [0]
    monkeypatch.setattr(access, "clock", SimpleNamespace(now=lambda: at[0]))

    async def scene(client, service):
        monkeypatch.setattr(service.model.engine, "state", EngineState.DRAINING)
        for _ in range(30):
            await client.post("/v1/completions", json={"prompt": "x"})
        at[0] += 1_000_000_000
        await client.post("/v1/completions", json={"prompt": "x"})

    lines = played(scene)
    assert [line["status"] for line in lines] == [503] * 11
    assert lines[-1]["refusals_unlisted"] == 20
    at[0] = 0
    assert len(played(scene, level="debug")) == 31


def test_probes_that_are_answered_with_200_are_logged_at_debug():
    async def scene(client, service):
        for path in ("/health", "/ready", "/metrics", "/dashboard/live", "/dashboard"):
            assert (await client.get(path)).status_code == 200

    assert [line["path"] for line in played(scene)] == ["/dashboard"]
    assert len(played(scene, level="debug")) == 5


def test_an_internal_error_in_an_answer_names_its_request(monkeypatch):
    def broken(choice, event):
        raise KeyError("no such thing")

    monkeypatch.setattr(Choice, "hear", broken)
    faults = []

    async def scene(client, service):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, about: faults.append(about["exception"]))
        headers = {"x-request-id": "mine"}
        answer = await client.post("/v1/completions", json=LONG, headers=headers)
        assert answer.status_code == 500

    (line,) = played(scene)
    assert (line["status"], line["code"]) == (500, "fault")
    assert faults[0].__notes__ == [f"request 'mine', answer {line['answer']}"]
