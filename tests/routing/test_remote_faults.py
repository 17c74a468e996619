"""Servers elsewhere that answer wrongly, at length, or with what should not be passed on."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from headway import Options
from headway.errors import EngineError, PromptError, RefusedError, SettingError
from headway.routing import Fallback, Price, RemoteTarget, RouteRequest
from headway.routing.attempts import loop_now
from headway.routing.targets import remote_reading

KEY = "sk-a-secret-key"
DEEP = b"[" * 200_000


@asynccontextmanager
async def target_at(answer, **given):
    """A target whose server calls `answer` with each connection's reader and writer."""

    async def served(reader, writer):
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, RemoteTarget(f"http://127.0.0.1:{port}/v1", "m", **given) as far:
        yield far


def saying(status, body, headers=""):
    head = (
        f"HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}content-length: {len(body)}\r\n\r\n"
    )

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode() + body)
        await writer.drain()

    return answer


async def text_of(route, streamed):
    request = RouteRequest("x")
    if streamed:
        return "".join([piece.text async for piece in route.stream(request)])
    return (await route.ask(request)).text


def error_of(answer, streamed):
    async def main():
        async with target_at(answer, key=KEY) as far, Fallback([far]) as route:
            with pytest.raises(EngineError) as raised:
                await text_of(route, streamed)
            return str(raised.value)

    return asyncio.run(main())


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "status, body, why",
    [
        (200, b'data: {"choices": ' + DEEP + b"\n\n", "no JSON"),
        (500, b'{"error": ' + DEEP, "500"),
        (500, b'{"error": "planted"}', "500: planted"),
        (302, b"", "not followed, to http://elsewhere/"),
    ],
)
def test_what_cannot_be_read_is_an_engine_error(status, body, why, streamed):
    assert why in error_of(saying(status, body, "location: http://elsewhere/\r\n"), streamed)


def test_a_deep_answer_is_an_engine_error():
    assert "no JSON" in error_of(saying(200, b'{"choices": ' + DEEP), False)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_broken_compression_does_not_read_as_a_server_that_cannot_be_reached(streamed):
    broken = saying(200, b"no gzip", "content-encoding: gzip\r\n")
    assert "not compressed" in error_of(broken, streamed)


@pytest.mark.parametrize(
    "status, body, streamed",
    [
        (401, b'{"error": {"message": "incorrect key: %b"}}', False),
        (401, b"bad token: Bearer %b", True),
        (200, b'data: {"error": {"message": "incorrect key: %b"}}\n\n', True),
    ],
)
def test_the_key_is_in_no_message(status, body, streamed):
    said = error_of(saying(status, body % KEY.encode()), streamed)
    assert KEY not in said and "[the key]" in said


@pytest.mark.parametrize("key", [f"{KEY}\n", f" {KEY}", "sk-sécret", "sk\0secret"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key):
    with pytest.raises(SettingError, match="the key") as raised:
        RemoteTarget("http://127.0.0.1:1/v1", "m", key=key)
    assert key.strip() not in str(raised.value)


def test_a_wrong_url_is_a_setting_error():
    with pytest.raises(SettingError, match="is no URL"):
        RemoteTarget("http://[::1", "m")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "given, kind",
    [
        (RouteRequest("\ud800"), PromptError),
        (RouteRequest([{"role": "user", "content": "\ud800"}]), PromptError),
        (RouteRequest("x", Options(temperature=float("nan"))), SettingError),
    ],
)
def test_what_json_cannot_hold_is_the_callers_fault(given, kind, streamed):
    async def main():
        async with RemoteTarget("http://127.0.0.1:1/v1", "m") as far, Fallback([far]) as route:
            with pytest.raises(kind):
                if streamed:
                    await anext(route.stream(given))
                else:
                    await route.ask(given)

    asyncio.run(main())


@pytest.mark.parametrize("said, least, most", [("1764410000", 3_600, 3_610), ("-5", 0, 10)])
def test_a_refusal_keeps_a_target_away_for_an_hour_at_most(said, least, most):
    async def main():
        refusing = saying(429, b"{}", f"retry-after: {said}\r\n")
        async with target_at(refusing) as far, Fallback([far]) as route:
            now = loop_now()
            with pytest.raises(RefusedError) as raised:
                await text_of(route, False)
            return (raised.value.retry_at - now) / 1e9

    assert least <= asyncio.run(main()) < most


def test_a_count_that_no_answer_has_counts_as_0():
    body = b'{"choices": [{"text": "a"}], "usage": {"completion_tokens": 1%b}}' % (b"0" * 400)

    async def main():
        price = Price(0, answer=1.0)
        async with target_at(saying(200, body), price=price) as far, Fallback([far]) as route:
            return await text_of(route, False)

    assert asyncio.run(main()) == "a"


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_is_read_up_to_a_bound(streamed, monkeypatch):
    monkeypatch.setattr(remote_reading, "MOST", 1 << 20)

    async def endless(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 X\r\n\r\ndata: ")
        try:
            for _ in range(64):  # MiB: far more than is read
                writer.write(b"x" * (1 << 20))
                await writer.drain()
        except ConnectionError:
            return
        raise AssertionError("the whole answer was read")

    assert "longer than 1 MiB" in error_of(endless, streamed)


def test_a_line_that_comes_in_many_pieces_is_read_once():
    """Also a line feed that comes after its carriage return, and a character cut in two."""
    line = 'data: {"choices": [{"text": "é", "finish_reason": "stop"}]}\r\n\r\n'.encode()

    class Response:
        async def aiter_bytes(self):
            for at in range(len(line)):
                yield line[at : at + 1]

    async def main():
        return [each async for each in remote_reading.lines(Response()) if each]

    assert asyncio.run(main()) == [line.decode().strip()]


def test_streams_teach_a_target_what_its_answers_take():
    body = (
        b'data: {"choices": [{"text": "a", "finish_reason": "stop"}], '
        b'"usage": {"completion_tokens": 3}}\n\n'
    )

    async def main():
        async with target_at(saying(200, body)) as far, Fallback([far]) as route:
            before = far.estimate(RouteRequest("x"))
            await text_of(route, True)
            return before, far.estimate(RouteRequest("x"))

    before, after = asyncio.run(main())
    assert not before.is_known and after.is_known


def test_all_requests_reach_the_server_at_once():
    """httpx opens 100 connections unless told otherwise; the others would wait unseen."""
    many = 130

    async def main():
        here, all_here = 0, asyncio.Event()

        async def answer(reader, writer):
            nonlocal here
            await reader.readuntil(b"\r\n\r\n")
            here += 1
            if here == many:
                all_here.set()
            await asyncio.wait_for(all_here.wait(), 30)
            await saying(200, b'{"choices": [{"text": "a"}]}')(_Read(), writer)

        async with target_at(answer) as far, Fallback([far]) as route:
            return await asyncio.gather(*[text_of(route, False) for _ in range(many)])

    assert asyncio.run(main()) == ["a"] * many


class _Read:
    """A reader of a request that has been read."""

    async def readuntil(self, end):
        return end
