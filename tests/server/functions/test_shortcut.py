"""Calls that bypass the framework still get all that its layers do. Over real sockets."""

import json
import re
from urllib.parse import urlsplit

import pytest

from headway.errors import RefusedError
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import digest
from headway.server.functions.calls import FunctionCalls
from headway.server.functions.direct.shortcut import Shortcut
from headway.server.observe.access import AccessLog
from headway.server.observe.logs import logger
from tests.server.functions import functions_to_serve
from tests.server.functions.served import serving
from tests.server.http.raw_client import Hostile
from tests.server.running_server import until

BODY = b'{"text": "hi"}'
SAID = {"upper": "HI", "together": 1}
LINES = []  # of the access log


@pytest.fixture(scope="module")
def shout():
    """The function's URL and its service, behind an access log."""
    log = logger("debug", LINES.append)
    with serving("shout", around=lambda app: AccessLog(app, log)) as served:
        yield served


@pytest.fixture
def taken(monkeypatch):
    """For each request in order: whether the shortcut took it."""
    kept, call = [], Shortcut.__call__

    async def noting(self, scope):
        kept.append(await call(self, scope))
        return kept[-1]

    monkeypatch.setattr(Shortcut, "__call__", noting)
    return kept


def head(url, *more, size=14, host="localhost", kind="application/json", last=True):
    lines = f"POST {urlsplit(url).path} HTTP/1.1", f"Host: {host}", f"Content-Length: {size}"
    end = ("Connection: close",) if last else ()
    return "\r\n".join([*lines, f"Content-Type: {kind}", *end, *more, "", ""]).encode()


def read(said):
    """Status, headers and value of one answer."""
    start, _, body = said.partition(b"\r\n\r\n")
    lines = start.decode().split("\r\n")
    headers = dict(each.lower().split(": ", 1) for each in lines[1:])
    assert int(headers["content-length"]) == len(body)
    return int(lines[0].split()[1]), headers, json.loads(body)


def exchanged(url, *parts):
    return read(Hostile(url).say(*parts).heard())


def test_the_shortcut_and_the_framework_give_the_same_answer(shout, taken):
    url, service = shout
    at_once = exchanged(url, head(url) + BODY)
    client = Hostile(url).say(head(url))
    until(lambda: service.open == 1)  # the layers have let it in, and wait for its body
    later = read(client.say(BODY).heard())
    until(lambda: len(taken) == 2 and service.open == 0)
    assert taken == [True, False] and at_once[0] == later[0] == 200
    assert at_once[2] == later[2] == SAID
    assert at_once[1].keys() == later[1].keys()
    for name in ("content-length", "content-type", "connection"):
        assert at_once[1][name] == later[1][name]


@pytest.mark.parametrize(
    "given, answered", [("a-b", "a-b"), ("", "req-[0-9a-f]{32}"), ("x" * 300, "req-[0-9a-f]{32}")]
)
def test_a_shortcut_request_has_its_id_and_its_access_log_line(shout, taken, given, answered):
    url, _ = shout
    LINES.clear()
    more = [f"X-Request-Id: {given}"] if given else []
    status, headers, _ = exchanged(url, head(url, *more, "X-Headway-Lane: slow") + BODY)
    assert status == 200 and taken == [True]
    assert re.fullmatch(answered, headers["x-request-id"])
    until(lambda: LINES)
    line = LINES[0]
    assert (line["event"], line["status"], line["lane"]) == ("request", 200, "slow")
    assert (line["path"], line["method"]) == (urlsplit(url).path, "POST")
    assert line["id"] == headers["x-request-id"] and line["client"] == "127.0.0.1"


def test_shortcut_and_framework_both_use_the_first_of_a_repeated_header(shout, taken):
    url, service = shout
    twice = "Accept: application/json", "Accept: application/msgpack"
    assert exchanged(url, head(url, *twice) + BODY)[0] == 200
    client = Hostile(url).say(head(url, *twice))
    until(lambda: service.open == 1)
    assert read(client.say(BODY).heard())[0] == 200
    until(lambda: len(taken) == 2)
    assert taken == [True, False]


def test_requests_on_one_connection_are_answered_in_their_order(shout, taken):
    url, _ = shout
    bodies = [b'{"text": "%d"}' % i for i in range(3)]
    heads = [head(url, size=len(each), last=each is bodies[-1]) for each in bodies]
    said = Hostile(url).say(b"".join(a + b for a, b in zip(heads, bodies, strict=True))).heard()
    assert re.findall(rb'"upper":"(\d)"', said) == [b"0", b"1", b"2"]
    assert said.count(b"HTTP/1.1 200 OK") == 3 and taken == [True] * 3


def test_each_request_of_a_connection_is_judged_by_its_own_header(shout, taken):
    url, _ = shout
    heads = [
        head(url, "X-Request-Id: a", "Authorization: Bearer one", last=False),
        head(url, "X-Request-Id: a", "Authorization: Bearer one", last=False),  # remembered
        head(url, "X-Request-Id: b", "X-Headway-Lane: slow", last=False),
        head(url, "X-Request-Id: c", "X-Headway-Lane: none", last=False),
        head(url, "X-Request-Id: d", host="evil.example", last=False),
        head(url, "X-Request-Id: d", host="evil.example", last=False),
        head(url, "X-Request-Id: e", kind="text/plain", last=False),
        head(url, "X-Request-Id: f"),
    ]
    LINES.clear()
    client = Hostile(url)
    said = client.say(*[each + BODY for each in heads]).heard()
    statuses = [int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", said)]
    assert statuses == [200, 200, 200, 400, 403, 403, 415, 200]
    assert b"".join(re.findall(rb"x-request-id: (\w)", said)) == b"aabcddef"
    until(lambda: len(LINES) == 8)
    lanes = [line.get("lane", "") for line in LINES]
    assert lanes == ["fast", "fast", "slow", "", "", "", "", "fast"]
    assert taken == [True] * 4 + [False] * 3 + [True]


def test_a_keys_limits_apply_to_each_request_of_a_connection(taken):
    entry = {"name": "ann", "sha256": digest("ann").hex(), "requests_per_minute": 2}
    config = ServerConfig.model_validate({"keys": [entry]})
    with serving("shout", config) as (url, _):
        key = "Authorization: Bearer ann"
        asked = [head(url, key, last=False), head(url, key, last=False), head(url, key)]
        said = Hostile(url).say(*[each + BODY for each in asked]).heard()
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", b"200", b"429"]
    assert taken == [True] * 3


def test_the_access_log_has_the_client_address_that_a_proxy_forwards(shout, taken):
    url, _ = shout
    for more, client in (([], "127.0.0.1"), (["X-Forwarded-For: 192.0.2.7"], "192.0.2.7")):
        LINES.clear()
        assert exchanged(url, head(url, *more) + BODY)[0] == 200
        until(lambda: LINES)
        assert LINES[0]["client"] == client
    assert taken == [True, True]


@pytest.mark.parametrize(
    "request_, status, code",
    [
        ({"host": "evil.example"}, 403, "host_not_allowed"),
        ({"more": ["Origin: http://evil.example"]}, 403, "origin_not_allowed"),
        ({"kind": "text/plain"}, 415, ""),
        ({"more": ["X-Headway-Timeout-Ms: soon"]}, 400, ""),
        ({"more": ["X-Headway-Timeout-Ms: 0.000001"]}, 408, "deadline_exceeded"),
        ({"more": ["X-Headway-Lane: none"]}, 400, "no_such_lane"),
    ],
)
def test_bad_hosts_origins_types_deadlines_and_lanes_are_refused(shout, request_, status, code):
    url, service = shout
    more = request_.pop("more", [])
    found, headers, value = exchanged(url, head(url, *more, **request_) + BODY)
    assert (found, value["error"]["code"] or "") == (status, code)
    assert headers["x-request-id"] and service.open == 0


def test_a_body_that_is_too_large_is_refused():
    config = ServerConfig.model_validate({"server": {"limits": {"body_bytes": 1024}}})
    with serving("shout", config) as (url, _):
        status, _, value = exchanged(url, head(url, size=2_000) + b" " * 2_000)
    assert (status, value["error"]["code"]) == (413, "body_too_large")


def test_expect_100_continue_is_answered_before_the_call(shout, taken):
    url, _ = shout
    said = Hostile(url).say(head(url, "Expect: 100-continue") + BODY).heard()
    first, _, rest = said.partition(b"\r\n\r\n")
    assert first == b"HTTP/1.1 100 Continue" and read(rest)[2] == SAID and taken == [False]


def test_a_call_ends_at_its_time_limit_or_when_its_client_leaves(taken):
    config = ServerConfig.model_validate({"server": {"limits": {"call_time": "800ms"}}})
    with serving("held", config) as (url, service):
        status, _, value = exchanged(url, head(url, size=1) + b"1")
        assert (status, value["error"]["code"]) == (408, "deadline_exceeded")
        assert value["error"]["message"] == "not answered within 0.8 s"
        functions_to_serve.HELD.release(1)
        until(lambda: not service.batcher._items)
    with serving("held") as (url, service):
        client = Hostile(url).say(head(url, size=1, last=False) + b"1")
        until(lambda: service.open == 1)
        client.close()
        until(lambda: service.open == 0)
        functions_to_serve.HELD.release(1)
        until(lambda: not service.batcher._items)
    assert taken == [True, True]


def test_a_refusal_by_a_full_lane_has_retry_after(shout, taken, monkeypatch):
    url, service = shout

    def full(*given):
        raise RefusedError("20 items wait in 'fast' already", 0)

    monkeypatch.setattr(service.batcher._waiting, "enter", full)
    status, headers, value = exchanged(url, head(url) + BODY)
    assert (status, value["error"]["code"]) == (429, "lane_full") and taken == [True]
    assert int(headers["retry-after"]) >= 1 and headers["x-request-id"]


def test_an_internal_error_is_answered_with_500_and_logged(shout, monkeypatch):
    url, service = shout

    async def broken(self, ask, accounts):
        raise KeyError("planted")

    LINES.clear()
    monkeypatch.setattr(FunctionCalls, "result", broken)
    status, headers, value = exchanged(url, head(url) + BODY)
    assert (status, value["error"]["code"]) == (500, "fault") and headers["x-request-id"]
    until(lambda: len(LINES) == 2)
    assert [line["event"] for line in LINES] == ["fault", "request"] and service.open == 0
    assert "planted" in LINES[0]["exception"] and LINES[1]["status"] == 500
