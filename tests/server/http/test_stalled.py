"""Clients that stop reading their answer, and clients that read it slowly."""

import asyncio
import socket
from math import inf

import pytest

from headway.server.config.sections.server import ServerSettings
from headway.server.http.exchange import EXCHANGE
from headway.server.listening import deadline as deadlines
from headway.server.listening.deadline import LEAST, UNREAD, Deadline
from headway.server.listening.http_server import HttpServer

ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
START = {"type": "http.response.start", "status": 200, "headers": []}
PART = {"type": "http.response.body", "body": b"x" * 65_536, "more_body": True}
MANY = 512  # parts: more bytes than the kernel buffers for a client


class Time:
    def __init__(self):
        self.now = 100.0

    def time(self):
        return self.now


async def until(holds):
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


def beside(app, scene):
    """Serve this application and run scene(connect, connections). connect() opens a connection and
    sends a request."""

    async def play():
        listening = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(app, ServerSettings(), 1_024)
        task = asyncio.create_task(server.serve([listening]))
        await until(lambda: server.started)

        async def connect():
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, listening.getsockname())
            await asyncio.get_running_loop().sock_sendall(client, ASK)
            return client

        try:
            await scene(connect, server.connections)
        finally:
            server.should_exit = True
            await task
            listening.close()

    asyncio.run(play())


async def streams(scope, receive, send):
    await send(START)
    for _ in range(MANY):
        await send(PART)
    await send(PART | {"more_body": False})


async def fails(scope, receive, send):
    await send(START)
    await send(PART | {"body": b"x" * (MANY * 65_536)})
    raise RuntimeError("planted")


@pytest.mark.parametrize("app", [streams, fails])
def test_a_client_that_stops_reading_is_disconnected(app, monkeypatch):
    monkeypatch.setattr(deadlines, "UNREAD", 0.2)
    monkeypatch.setattr("headway.server.listening.bounded_protocol.UNREAD", 0.2)

    async def scene(connect, connections):
        client = await connect()
        await until(lambda: len(connections))
        await until(lambda: not len(connections))
        client.close()

    beside(app, scene)


def test_cutting_an_answer_closes_its_connection_and_logs_nothing(caplog):
    async def cuts(scope, receive, send):
        await send(START)
        await send(PART | {"body": b"x" * (MANY * 65_536)})
        scope["extensions"][EXCHANGE].cut()

    async def scene(connect, connections):
        client = await connect()
        await until(lambda: len(connections))
        await until(lambda: not len(connections))
        client.close()

    beside(cuts, scene)
    assert not caplog.records, "no client can fill the log"


def test_a_slow_reader_gets_more_time_only_if_it_has_read_enough():
    time = Time()
    deadline = Deadline(time, 10.0)
    deadline.set(inf)
    deadline.pause(1_000_000)
    assert deadline.at == time.now + UNREAD
    time.now = deadline.at
    assert deadline.extend(1_000_000 - LEAST)
    assert deadline.at == time.now + UNREAD
    time.now = deadline.at
    assert not deadline.extend(1_000_000 - 2 * LEAST + 1), "it has read too little meanwhile"


def test_a_client_that_reads_again_has_no_deadline_during_its_answer():
    deadline = Deadline(Time(), 10.0)
    deadline.set(inf)
    deadline.pause(100_000)
    deadline.resume()
    assert deadline.at == inf


def test_unread_bytes_of_a_complete_answer_extend_the_idle_deadline():
    time = Time()
    deadline = Deadline(time, 10.0)
    deadline.answered(5.0, 0)
    assert deadline.at == time.now + 5.0
    assert not deadline.extend(0), "it is idle"
    deadline.answered(5.0, 2 * LEAST)
    assert deadline.at == time.now + UNREAD
    time.now = deadline.at
    assert deadline.extend(LEAST) and deadline.at == time.now + UNREAD
    time.now = deadline.at
    assert not deadline.extend(LEAST)


def test_a_late_header_is_not_excused_by_earlier_reading():
    time = Time()
    deadline = Deadline(time, 10.0)
    deadline.pause(2 * LEAST)
    deadline.resume()
    deadline.set(1.0)
    assert not deadline.extend(0)
