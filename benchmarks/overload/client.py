"""Callers in one process that does little else, over as many connections as they need.

    python -m benchmarks.overload.client PORT SEED closed SECONDS CALLERS
    python -m benchmarks.overload.client PORT SEED open SECONDS RATE
    python -m benchmarks.overload.client PORT SEED flood SECONDS RATE

closed: each caller asks again as soon as it is answered. open: arrivals are Poisson, however many
have not been answered; a refused caller comes back once, when it was told to. flood: no caller
comes back. Prints one JSON object when all are answered. Times are of the machine's monotonic
clock, in seconds.
"""

import asyncio
import json
import random
import re
import sys
from time import monotonic, process_time

from headway.runs.corpus import read_corpus

WORDS, TOKENS = (20, 60), (8, 40)  # of prompts and of answers: from, to
HEAD = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)")
RETRY = re.compile(rb"(?i)\r\nretry-after-ms: (\d+)")
SECONDS = re.compile(rb"(?i)\r\nretry-after: (\d+)")
LANE = re.compile(rb"(?i)\r\nx-headway-lane: (\S+)")
DECODE, TPOT = (
    re.compile(rb'"%s":([\d.]+)' % name) for name in (b"generation_time_ms", b"mean_itl_ms")
)
BROKEN = 0  # in a status's place


Told = tuple[int, float, str, float, float]
NOTHING: Told = BROKEN, 0.0, "", 0.0, 0.0


def told(head: bytes, body: bytes) -> Told:
    """From an answer: its status; for how many seconds the caller should stay away (0: it was not
    told); its lane, its decode time and its TPOT in seconds, as the server has them."""
    retry, seconds, lane = RETRY.search(head), SECONDS.search(head), LANE.search(head)
    away = int(retry[1]) / 1e3 if retry else float(seconds[1]) if seconds else 0.0
    decode, tpot = (
        float(found[1]) / 1e3 if (found := each.search(body)) else 0.0 for each in (DECODE, TPOT)
    )
    return int(head[9:12]), away, lane[1].decode() if lane else "", decode, tpot


class Connection(asyncio.Protocol):
    """One request at a time; afterwards it is free for the next."""

    def __init__(self, free: "list[Connection]") -> None:
        self._free, self._said = free, b""
        self._answer: asyncio.Future[Told] | None = None
        self._transport: asyncio.WriteTransport | None = None

    async def ask(self, request: bytes) -> Told:
        assert self._transport
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._said += data
        end = self._said.find(b"\r\n\r\n")
        length = LENGTH.search(self._said)
        if end < 0 or not length or len(self._said) < end + 4 + int(length[1]):
            return
        head, body, self._said = self._said[:end], self._said[end:], b""
        self._free.append(self)
        self._end(told(head, body))

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._free:
            self._free.remove(self)
        self._end(NOTHING)

    def _end(self, told: Told) -> None:
        answer, self._answer = self._answer, None
        if answer and not answer.done():
            answer.set_result(told)


class Callers:
    """answers: of each request, the fields of Answer in __main__.py."""

    def __init__(self, port: int, seed: int) -> None:
        self.port, self.random, self.words = port, random.Random(seed), read_corpus().split()
        self.answers: list[tuple[float, float, float, int, float, int, str, float, float]] = []
        self._free: list[Connection] = []

    def request(self) -> bytes:
        """A request with a prompt that was not sent before, and an answer of one exact length."""
        draw = self.random
        at = draw.randrange(len(self.words) - WORDS[1])
        prompt = f"{draw.getrandbits(32)} {' '.join(self.words[at : at + draw.randint(*WORDS)])}"
        body = {"prompt": prompt, "max_tokens": draw.randint(*TOKENS), "ignore_eos": True}
        said = json.dumps(body).encode()
        return f"{HEAD}Content-Length: {len(said)}\r\n\r\n".encode() + said

    async def ask(self, request: bytes, due: float, attempt: int) -> float:
        sent = monotonic()
        if not self._free:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(
                lambda: Connection(self._free), "127.0.0.1", self.port
            )
        else:
            connection = self._free.pop()
        status, away, lane, decode, tpot = await connection.ask(request)
        ended = monotonic()
        self.answers.append((due, sent, ended, status, away, attempt, lane, decode, tpot))
        return away

    async def closed(self, seconds: float, callers: int) -> None:
        end = monotonic() + seconds

        async def one() -> None:
            while (now := monotonic()) < end:
                await self.ask(self.request(), now, 0)

        await asyncio.gather(*[one() for _ in range(callers)])

    async def open(self, seconds: float, rate: float, returning: bool) -> None:
        due = monotonic()
        end, asked = due + seconds, set[asyncio.Task[None]]()
        while (due := due + self.random.expovariate(rate)) < end:
            await asyncio.sleep(due - monotonic())
            asked.add(asyncio.create_task(self._arrive(self.request(), due, returning)))
        await asyncio.gather(*asked)

    async def _arrive(self, request: bytes, due: float, returning: bool) -> None:
        if (away := await self.ask(request, due, 0)) and returning:
            due = monotonic() + away
            await asyncio.sleep(away)
            await self.ask(request, due, 1)


async def main(port: int, seed: int, how: str, seconds: float, many: float) -> None:
    callers = Callers(port, seed)
    if how == "closed":
        await callers.closed(seconds, int(many))
    else:
        await callers.open(seconds, many, how == "open")
    print(json.dumps({"answers": callers.answers, "cpu": process_time()}))


if __name__ == "__main__":
    _, port, seed, how, seconds, many = sys.argv
    asyncio.run(main(int(port), int(seed), how, float(seconds), float(many)))
