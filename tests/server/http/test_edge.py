"""Bounds on clients that send too much, too little or too slowly, before any key is read."""

import asyncio
import json
import logging
import socket
from contextlib import contextmanager

import httpx2
import pytest

from headway.server.config.config import ServerConfig
from headway.server.http import body as bodies
from headway.server.listening.connections import GRACE, ConnectionTable, Stage
from tests.server.http.raw_client import HEAD, Hostile, body
from tests.server.running_server import Permitted, fake, serving, until

ASKED = {"prompt": [5, 6], "max_tokens": 3, "ignore_eos": True}
NEVER = {"header_time": "none", "body_time": "none", "idle_time": "none"}


def config(limits=(), **connections):
    """A configuration without time limits, except those given."""
    held = NEVER | connections
    return ServerConfig(server={"connections": held, "limits": dict(limits)})


@contextmanager
def edge(settings):
    """Serve a front; gives its URL and its connection table."""
    with serving(settings, fake) as (url, service):
        until(lambda: hasattr(service, "http_server"))
        yield url, service.http_server.connections


def health(url):
    return httpx2.get(f"{url}/health", timeout=30).status_code


FIELD = b"a: " + b"b" * 1_000 + b"\r\n"


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ([HEAD, b"X: ", *[b"y" * 65_536] * 64], (431, "header_too_large")),
        ([HEAD, *[FIELD] * 40], (431, "header_too_large")),
        ([HEAD, b"a: b\r\n" * 200, b"\r\n"], (431, "header_too_large")),
        ([b"\r\n" * 65_536], (431, "header_too_large")),
        ([b"GET /", *[b"y" * 65_536] * 8], (414, "path_too_long")),
        ([b"GET /" + b"y" * 9_000 + b" HTTP/1.1\r\n\r\n"], (414, "path_too_long")),
        ([HEAD, b"X-Headway-Lane: a\r\n", b"x-headway-lane: b\r\n\r\n"], (400, "repeated_header")),
        ([HEAD, b"X-Slo-Ttft-Ms: 9\r\n" * 2, b"\r\n"], (400, "repeated_header")),
        ([b"\x16\x03\x01\x02\x00" * 20], (400, "not_http")),
        ([HEAD, b"Transfer-Encoding: chunked\r\n\r\n", b"1;", b"y" * 200_000], (400, "not_http")),
    ],
)  # fmt: skip
def test_an_oversized_repeated_or_malformed_head_is_refused_as_it_arrives(sent, answer, caplog):
    with edge(config()) as (url, connections):
        hostile = Hostile(url).say(*sent)
        assert hostile.answer() == answer
        until(lambda: not len(connections))
        assert health(url) == 200
    assert not caplog.records, "no client can fill the log"


def test_oversized_trailers_are_refused():
    with edge(config()) as (url, _):
        hostile = Hostile(url).say(HEAD, b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ")
        hostile.say(*[b"y" * 65_536] * 16)
        assert hostile.answer() == (400, "not_http")


def test_a_header_within_bounds_is_served():
    with edge(config()) as (url, _):
        headers = {f"x-{each}": "y" * 500 for each in range(50)}
        answer = httpx2.post(f"{url}/v1/completions", json=ASKED, headers=headers)
        assert answer.status_code == 200
        answer = httpx2.get(f"{url}/health", params={"q": "y" * 8_000})
        assert answer.status_code == 200


def test_blanks_around_a_header_value_are_ignored():
    with edge(config()) as (url, _):
        lane = b"X-Headway-Lane: \t offline \t \r\n"
        get = b"GET /v1/models HTTP/1.1\r\nConnection: close \r\n"
        assert b" 200 " in Hostile(url).say(get, b"a: b\r\n" * 2, b"\r\n").heard()
        asked = b'{"prompt": [5], "max_tokens": 1}'
        said = Hostile(url).say(HEAD, lane, b"Connection: close\r\n")
        said.say(b"Content-Length: %d\r\n\r\n" % len(asked), asked)
        answer = said.heard()
        assert b" 200 " in answer and b"x-headway-lane: offline\r\n" in answer


def test_configured_path_and_header_sizes_are_obeyed():
    with edge(config(target_bytes=20, header_bytes=400, header_fields=6)) as (url, _):
        get = b"GET /health HTTP/1.1\r\nConnection: close\r\n"
        assert b" 200 " in Hostile(url).say(get, b"a: b\r\n" * 5, b"\r\n").heard()
        assert Hostile(url).say(get, b"a: b\r\n" * 6, b"\r\n").answer()[0] == 431
        assert Hostile(url).say(get, b"a: ", b"b" * 400, b"\r\n\r\n").answer()[0] == 431
        assert Hostile(url).say(b"GET /health?1234567890123 HTTP/1.1\r\n\r\n").answer()[0] == 414


@pytest.mark.parametrize(
    ("late", "sent", "answer"),
    [
        ("header_time", b"", (0, "")),
        ("header_time", b"GET /health HT", (408, "header_late")),
        ("header_time", HEAD, (408, "header_late")),
        ("body_time", body(100) + b"{", (408, "body_late")),
        ("body_time", HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n", (408, "body_late")),
    ],
)
def test_a_client_that_sends_nothing_or_too_little_is_disconnected(late, sent, answer):
    with edge(config(**{late: "400ms"})) as (url, connections):
        assert Hostile(url).say(sent).answer() == answer
        until(lambda: not len(connections))


def test_sending_one_byte_at_a_time_does_not_extend_the_header_deadline():
    with edge(config(header_time="50ms")) as (url, connections):
        hostile = Hostile(url)
        for each in b"GET /health HTTP/1.1\r\nX: " + b"y" * 100_000:
            hostile.say(bytes([each]))
            if not connections.count(Stage.IDLE):
                break
        assert hostile.answer()[0] in (0, 408)
        hostile.close()


def test_an_idle_connection_is_closed_after_its_answer():
    with edge(config(idle_time="100ms")) as (url, _):
        said = Hostile(url).say(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").heard()
        assert said.count(b"HTTP/1.1 200") == 1


def test_a_stray_newline_after_a_body_does_not_cut_off_the_answer():
    with edge(config(header_time="100ms", idle_time="100ms")) as (url, _):
        said = b'{"prompt": [5], "max_tokens": 900, "ignore_eos": true, "stream": true}'
        hostile = Hostile(url).say(body(len(said)), said, b"\r\n")
        assert b"data: [DONE]" in hostile.heard()


def test_pipelined_requests_are_answered_in_order_and_their_number_is_bounded():
    get = b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
    with edge(config()) as (url, connections):
        some = [get % (path, b"") for path in (b"/health", b"/ready", b"/v1/models")]
        said = Hostile(url).say(b"".join(some) + get % (b"/x", b"Connection: close\r\n")).heard()
        found = [said.index(each) for each in (b'"ok"', b'"list"', b'"not_found_error"')]
        assert found == sorted(found) and said.count(b"HTTP/1.1 200") == 3
        assert Hostile(url).say(get % (b"/health", b"") * 5_000).heard().count(b" 200 ") < 20
        until(lambda: not len(connections))


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_pipelined_requests(stream):
    executor = Permitted()
    with serving(config(), executor.engine) as (url, service):
        said = json.dumps(ASKED | {"max_tokens": 900, "stream": stream}).encode()
        client = Hostile(url).say((body(len(said)) + said) * 3)
        until(lambda: executor.asked == 1)  # its first token waits for a permit
        client.close()
        until(lambda: not service.model.admission.open)
        executor.permits.release(900)
        until(lambda: not service.model.engine.load.running)


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_an_upgrade_to_another_protocol_is_ignored(protocol):
    """Java's HttpClient asks to upgrade to HTTP/2 in its first request, with or without a body."""
    said = json.dumps(ASKED).encode()
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\n" % protocol.encode()
    sized = HEAD + wish + b"Content-Length: %d\r\n\r\n" % len(said) + said
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(said), said)
    chunked = HEAD + wish + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
    empty = b"GET /health HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
    last = empty % b"Connection: close\r\n"
    with edge(config()) as (url, connections):
        for parts in ([sized + chunked + empty % wish + last], [sized[:200], sized[200:], last]):
            heard = Hostile(url).say(*parts).heard()
            assert heard.count(b"HTTP/1.1 200") == (4 if len(parts) == 1 else 2)
        assert Hostile(url).say(b"CONNECT /health HTTP/1.1\r\n\r\n").answer() == (400, "not_http")
        until(lambda: not len(connections))


def test_silent_connections_do_not_keep_a_new_client_out():
    with edge(config(most=4)) as (url, connections):
        silent = [Hostile(url) for _ in range(200)]
        slow = [Hostile(url).say(body(100) + b"{") for _ in range(20)]
        until(lambda: connections.count(Stage.RECEIVING) == 4)
        assert httpx2.post(f"{url}/v1/completions", json=ASKED, timeout=30).status_code == 200
        assert len(connections) <= 4 + 64
        for each in (*silent, *slow):
            each.close()
        until(lambda: not len(connections))


def test_a_client_evicted_during_its_body_gets_503_with_retry_after():
    with edge(config(most=1)) as (url, connections):
        first = Hostile(url).say(body(100) + b"{")
        until(lambda: connections.count(Stage.RECEIVING) == 1)
        second = Hostile(url).say(body(100) + b"{")
        head, _, said = first.heard().partition(b"\r\n\r\n")
        assert head.split()[1] == b"503" and b"too_many_connections" in said
        assert b"\r\nretry-after: " in head and b"\r\nretry-after-ms: " in head
        second.close()


def test_a_body_still_arriving_at_shutdown_is_refused_as_draining(caplog):
    with serving(config(), fake) as (url, service):
        until(lambda: hasattr(service, "http_server"))
        server = service.http_server
        sized = Hostile(url).say(body(100) + b"{")
        chunked = Hostile(url).say(HEAD, b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
        until(lambda: server.connections.count(Stage.RECEIVING) == 2)
        server.should_exit = True
        assert [sized.answer(), chunked.answer()] == [(503, "draining")] * 2
    assert not caplog.records


def test_probes_are_answered_when_all_connections_are_in_use():
    executor = Permitted()
    with serving(config(most=3), executor.engine) as (url, service):
        until(lambda: hasattr(service, "http_server"))

        async def overload():
            limits = httpx2.Limits(max_connections=None)
            async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=30) as client:
                calls = [client.post("/v1/completions", json=ASKED) for _ in range(3)]
                asked = [asyncio.create_task(each) for each in calls]
                while service.model.admission.open < 3:
                    await asyncio.sleep(0)
                silent = [Hostile(url) for _ in range(100)]
                probes = [(await client.get(path)).status_code for path in ("/health", "/ready")]
                refused = await client.post("/v1/completions", json=ASKED)
                executor.permits.release(100)
                answers = await asyncio.gather(*asked)
                for each in silent:
                    each.close()
                return probes, refused, [each.status_code for each in answers]

        probes, refused, answers = asyncio.run(overload())
        assert probes == [200, 200] and answers == [200, 200, 200]
        assert refused.status_code == 503 and refused.headers["retry-after"]
        assert refused.json()["error"]["code"] == "too_many_connections"
        assert httpx2.post(f"{url}/v1/completions", json=ASKED).status_code == 200


def test_a_client_beyond_the_most_is_told_so_while_it_still_sends_its_body():
    executor, size = Permitted(), 3_000_000
    with serving(config(most=1), executor.engine) as (url, _):
        said = json.dumps(ASKED).encode()
        first = Hostile(url).say(body(len(said)) + said)
        until(lambda: executor.asked == 1)  # its first token waits for a permit
        late = Hostile(url).socket
        late.sendall(body(size) + b" " * size)  # no reset, which could overtake the answer
        heard = b""
        while part := late.recv(65_536):
            heard += part
        assert heard.startswith(b"HTTP/1.1 503 ") and b"too_many_connections" in heard
        assert b"\r\nretry-after-ms: " in heard
        late.close()
        executor.permits.release(100)
        assert first.status() == 200
        first.close()


@pytest.mark.parametrize("last", [b"HTTP/1.1\r\nConnection: close", b"HTTP/1.0"])
def test_a_refusal_reaches_a_client_that_closes_and_still_sends_its_body(last):
    keys, size = [{"name": "a", "sha256": "0" * 64}], 3_000_000
    with serving(ServerConfig(server=config().server, keys=keys), fake) as (url, _):
        for _ in range(3):
            late = Hostile(url).socket
            late.sendall(body(size).replace(b"HTTP/1.1", last) + b" " * size)
            heard = b""
            while part := late.recv(65_536):
                heard += part
            assert heard.startswith(b"HTTP/1.1 401 ") and heard.endswith(b"}}")
            late.close()


class FakeConnection:
    """A connection as the table sees it."""

    deadline = 0.0

    def __init__(self, connections, descriptor=10, address="127.0.0.1", now=0.0):
        self.connections, self.descriptor, self.address = connections, descriptor, address
        connections.add(self, now)

    def evict(self):
        self.connections.remove(self)


def test_some_descriptors_are_reserved_for_probes_and_for_other_files():
    connections = ConnectionTable(config().server.connections, 100)  # as `ulimit -n` may set it
    busy, most, now = [], 100 - 25 - 12, 0.0  # a quarter is for other files, an eighth for probes
    for descriptor in range(20, most):
        assert not connections.accept_delay(now) and connections.admits_connection(
            descriptor, "192.0.2.1"
        )
        busy.append(FakeConnection(connections, descriptor))
        assert connections.admits_request(busy[-1])
        connections.set_stage(busy[-1], Stage.ANSWERING, now)
    late = []
    for descriptor in range(most, most + 12):
        assert not connections.accept_delay(now) and connections.admits_connection(
            descriptor, "192.0.2.1"
        )
        late.append(FakeConnection(connections, descriptor, now=now))
        assert not connections.admits_request(late[-1]), "it may ask for /health"
        assert len(connections) <= len(busy) + 6, "the oldest was closed to make room"
        now += GRACE
    assert not connections.admits_connection(most + 12, "192.0.2.1")
    assert connections.count(Stage.ANSWERING) == len(busy), "a connection being answered stays"


def test_no_connection_is_evicted_before_its_grace_period_ends():
    connections = ConnectionTable(config().server.connections, 100)
    now = 1.0
    assert connections.admits_connection(20, "192.0.2.1")
    came = [FakeConnection(connections, descriptor, now=now) for descriptor in range(20, 63)]
    assert connections.accept_delay(now + GRACE / 4) == pytest.approx(3 * GRACE / 4)
    assert len(connections) == len(came), "another one waits"
    connections.set_stage(came[0], Stage.ANSWERING, now + GRACE / 2)  # its request has arrived
    assert connections.accept_delay(now + GRACE) == 0 and connections.count(Stage.ANSWERING) == 1
    assert len(connections) == len(came) - 1, "the oldest silent one was closed"


def test_a_full_server_accepts_new_clients_after_the_grace_of_silent_ones():
    with edge(config(most=4)) as (url, connections):
        silent = []
        for _ in range(3):  # each batch is still in its grace when the next comes
            silent += [Hostile(url) for _ in range(80)]
            assert health(url) == 200
            assert len(connections) <= 4 + 64
        for each in silent:
            each.close()


def test_a_failing_accept_is_logged_once_and_then_recovers(monkeypatch, caplog):
    failing = [True]

    with edge(config()) as (url, _):
        accept = socket.socket.accept

        def broken(listening):
            if failing:
                raise OSError(24, "Too many open files")
            return accept(listening)

        monkeypatch.setattr(socket.socket, "accept", broken)
        silent = [Hostile(url) for _ in range(20)]
        until(lambda: any("Too many open files" in each.message for each in caplog.records))
        before = len(caplog.records)
        failing.clear()
        assert health(url) == 200
        for each in silent:
            each.close()
    assert before == len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING


def test_per_address_limits_all_but_trusted_and_loopback_addresses():
    settings = config(per_address=2, trusted=["10.0.0.0/8"]).server.connections
    connections = ConnectionTable(settings, 1_024)
    first, _ = (
        FakeConnection(connections, address="192.0.2.1"),
        FakeConnection(connections, address="192.0.2.1"),
    )
    free = ("10.1.2.3", "127.0.0.1", "::1")
    for address in free * 3:
        FakeConnection(connections, address=address)
    assert not connections.admits_connection(20, "192.0.2.1")
    assert all(connections.admits_connection(20, each) for each in ("192.0.2.2", *free))
    connections.remove(first)
    assert connections.admits_connection(20, "192.0.2.1")


def test_all_bodies_together_are_bounded_and_small_ones_still_pass():
    limits = {"body_bytes": 100_000, "bodies_bytes": 250_000}
    with serving(config(limits), fake) as (url, service):
        large = [Hostile(url).say(body(100_000), b" " * 80_000) for _ in range(4)]
        until(lambda: 160_000 <= service.bodies.held_bytes <= 250_000)
        answers = [httpx2.post(f"{url}/v1/completions", json=ASKED) for _ in range(3)]
        assert [each.status_code for each in answers] == [200] * 3, "small ones pass"
        late = httpx2.post(f"{url}/tokenize", json={"prompt": "x" * 90_000})
        assert late.status_code == 200, "and so does a large one that arrives at once"
        for each in large:
            each.close()
        until(lambda: not service.bodies.held_bytes)


def test_a_refused_body_frees_its_memory_and_its_client_gets_429():
    limits = {"body_bytes": 100_000, "bodies_bytes": 100_000}
    with serving(config(limits), fake) as (url, service):
        first = Hostile(url).say(body(100_000), b" " * 90_000)
        until(lambda: service.bodies.held_bytes == 90_000)
        second = Hostile(url).say(body(100_000), b" " * 20_000)
        assert first.status() == 429
        first.close()
        until(lambda: service.bodies.held_bytes == 20_000)
        second.close()
        until(lambda: not service.bodies.held_bytes)


def test_a_requests_deadline_bounds_the_wait_for_its_body(monkeypatch):
    monkeypatch.setattr(bodies, "LEAST_TIME", 0)
    with serving(config(), fake) as (url, service):
        head = body(100).replace(b"Host:", b"X-Headway-Timeout-Ms: 50\r\nHost:")
        hostile = Hostile(url).say(head, b"{")
        assert hostile.status() == 408
        until(lambda: not service.bodies.held_bytes)
        hostile.close()
        said = httpx2.get(f"{url}/metrics").text
    counted = [line for line in said.splitlines() if 'reason="deadline_exceeded"} 1' in line]
    assert len(counted) == 1 and 'lane=""' in counted[0]


def test_head_is_answered_without_a_body():
    with serving(config(), fake) as (url, _):
        for path in ("/health", "/ready", "/v1/models", "/metrics"):
            answer = httpx2.head(f"{url}{path}")
            assert (answer.status_code, answer.content) == (200, b"")
            assert int(answer.headers["content-length"]) > 0
        assert httpx2.head(f"{url}/v1/completions").status_code == 405


def test_clients_refused_within_their_bodies_make_room_for_others_while_they_linger(caplog):
    broken = HEAD + b"Transfer-Encoding: chunked\r\n\r\nno size\r\n"
    with edge(config(most=1)) as (url, _):
        refused = [Hostile(url).say(broken) for _ in range(40)]  # more than may be idle
        assert health(url) == 200
        assert refused[-1].answer() == (400, "not_http")
        for each in refused[:-1]:
            each.close()
    assert not caplog.records
