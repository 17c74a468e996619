"""A server that computes nothing and answers by a schedule: each delay is known beforehand.

It speaks as much of OpenAI's API as a load generator uses. What it answers follows from the request
alone (Plan), so the true latency of every request is known. Each piece is due at a time that counts
from the receipt of the request, so a late piece delays no other.

    python -m benchmarks.client_accuracy.scheduled_server PORT     0: any free port, which it prints
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import httptools

FIRST, PER_TOKEN = 0.030, 0.0005  # seconds
GAPS = 0.030, 0.045, 0.070  # seconds between tokens, by the length of the answer
ROUNDING = 0.0005  # seconds by which asyncio is late on average: it waits in whole milliseconds
HEAD = "HTTP/1.1 {} {}\r\ncontent-type: {}\r\n{}"
STREAM = "transfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Plan:
    """How one request is answered."""

    times: tuple[float, ...] = ()  # seconds after its receipt, of each token
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks_after: int = -1  # tokens, after which the connection is cut; -1: it is not
    error_after: int = -1  # tokens, after which the stream has an error; -1: it has none
    body: str = '{"error":{"message":"as planned"}}'  # of another status than 200


def true_delays(answer: int) -> tuple[float, ...]:
    """When each of so many tokens comes, in seconds after the receipt of the request.

    The prompt changes nothing: tools count one text differently.
    """
    first, gap = FIRST + PER_TOKEN * answer, GAPS[answer % len(GAPS)]
    return tuple(first + gap * at for at in range(answer))


def by_length(body: Mapping[str, Any], headers: Mapping[str, str]) -> Plan:
    """Delays that follow from the length of the answer."""
    return Plan(true_delays(int(body.get("max_tokens", 1))))


def prompt_tokens(body: Mapping[str, Any]) -> int:
    """Token ids, or words of a text."""
    prompt = body.get("prompt")
    if prompt is None:
        prompt = " ".join(each["content"] for each in body.get("messages", ()))
    return len(prompt.split() if isinstance(prompt, str) else prompt)


Planner = Callable[[Mapping[str, Any], Mapping[str, str]], Plan]


class Answerer(asyncio.Protocol):
    """One connection."""

    def __init__(self, planner: Planner, tokenizes: bool, opened: "set[Answerer]") -> None:
        """opened: all connections that are open."""
        self.planner, self.tokenizes, self.opened = planner, tokenizes, opened
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._body, self._headers = b"", b"", dict[str, str]()
        self._timers = list[asyncio.TimerHandle]()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.loop = transport, asyncio.get_running_loop()
        self.opened.add(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.opened.discard(self)
        for timer in self._timers:
            timer.cancel()

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        now, path = self.loop.time(), self._url.decode()
        body = json.loads(self._body) if self._body else {}
        headers, self._headers, self._body = self._headers, {}, b""
        if path == "/health":
            self._whole(200, "{}")
        elif path == "/v1/models":
            self._whole(200, json.dumps({"data": [{"id": "scheduled", "max_model_len": 1 << 20}]}))
        elif path == "/tokenize" and self.tokenizes and "prompt" in body:
            self._whole(
                200,
                json.dumps({"tokens": [crc32(w.encode()) % 9_973 for w in body["prompt"].split()]}),
            )
        elif path in ("/v1/completions", "/v1/chat/completions"):
            self._answer(self.planner(body, headers), body, now, "chat" in path)
        else:
            self._whole(404, '{"error":{"message":"not here"}}')

    def _whole(self, status: int, body: str, headers: Mapping[str, str] | None = None) -> None:
        said = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        said += f"content-length: {len(body.encode())}\r\n\r\n"
        head = HEAD.format(status, "Status", "application/json", said)
        self.transport.write((head + body).encode())

    def _answer(self, plan: Plan, body: Mapping[str, Any], now: float, chat: bool) -> None:
        if plan.status != 200:
            self._whole(plan.status, plan.body, plan.headers)
            return
        self.transport.write(HEAD.format(200, "OK", "text/event-stream", STREAM).encode())
        if chat:
            self._chunk(b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n')
        pieces = _pieces(plan, prompt_tokens(body), chat)
        self._timers = []
        self._next(pieces, now)

    def _next(self, pieces: Iterator[tuple[float, bytes]], began: float) -> None:
        for at, data in pieces:
            if (due := began + at - ROUNDING) > self.loop.time():
                timer = self.loop.call_at(due, self._send, data, pieces, began)
                self._timers = [timer]
                return
            self._chunk(data)

    def _send(self, data: bytes, pieces: Iterator[tuple[float, bytes]], began: float) -> None:
        self._chunk(data)
        self._next(pieces, began)

    def _chunk(self, data: bytes) -> None:
        """An empty one ends the body, and CUT the connection."""
        if data == CUT:
            self.transport.abort()
            return
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


CUT = b"cut"


def _pieces(plan: Plan, prompt: int, chat: bool) -> Iterator[tuple[float, bytes]]:
    """Each event with its time in seconds."""
    head = '{"delta":{"content":' if chat else '{"text":'
    tail = "}" if chat else ""
    word = f'data: {{"choices":[{head}" word"{tail},"finish_reason":null}}]}}\n\n'.encode()
    last = 0.0
    for number, at in enumerate(plan.times):
        last = at
        if number == plan.breaks_after:
            yield at, CUT
            return
        if number == plan.error_after:
            yield at, b'data: {"error":{"message":"as planned"}}\n\n'
            break
        yield at, word
    else:
        usage = {"prompt_tokens": prompt, "completion_tokens": len(plan.times)}
        end = f'{head}""{tail},"finish_reason":"length"}}'
        yield last, f'data: {{"choices":[{end}]}}\n\n'.encode()
        yield last, f'data: {{"choices":[],"usage":{json.dumps(usage)}}}\n\n'.encode()
        yield last, b"data: [DONE]\n\n"
    yield last, b""


@asynccontextmanager
async def listening(
    port: int = 0, planner: Planner = by_length, tokenizes: bool = True
) -> AsyncIterator[asyncio.Server]:
    """A server on loopback. All of its connections are cut when the block is left."""
    opened = set[Answerer]()
    server = await asyncio.get_running_loop().create_server(
        lambda: Answerer(planner, tokenizes, opened), "127.0.0.1", port, backlog=2_048
    )
    try:
        yield server
    finally:
        server.close()
        for each in opened:
            each.transport.abort()
        await asyncio.sleep(0)


async def main(port: int) -> None:
    async with listening(port) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
