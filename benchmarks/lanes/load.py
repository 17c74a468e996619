"""The requests of three lanes, offered to a server: a nightly job first, then voice and chat.

The load is open-loop: a request is sent when it is due, however many are unanswered.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from benchmarks.server_overhead.served import Served
from headway.journal.journal import read
from headway.runs.corpus import read_corpus
from headway.sim.replay import replay

SEED, SLOTS = 0, 16
FLOOD, BEGIN, END = 0.5, 2.0, 18.0  # seconds: the nightly job comes; voice and chat from, until
COUNT, ANSWER = 16, 1_900  # of the nightly job: requests, tokens each
LANES: dict[str, dict[str, Any]] = {
    "voice": {"ttft": "300ms", "tpot": "60ms", "queue": "1s", "priority": 0},
    "chat": {"ttft": "1s", "tpot": "100ms", "queue": "2s", "priority": 1, "max_waiting": 40},
    "nightly": {"priority": 2},
}
INTERACTIVE, NIGHTLY = ("voice", "chat"), ("nightly",)
# Seconds: first token, each token after it, whole answer.
LIMITS = {"voice": (0.3, 0.06, inf), "chat": (1.0, 0.1, inf), "report": (inf, inf, 3.0)}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request before it is sent."""

    due: float  # seconds after the start
    lane: str
    tokens: int  # of the answer
    prompt: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One request and what came of it; times in seconds after the start."""

    ask: Ask
    status: int
    first: float  # first token; 0: none
    end: float
    good: bool  # inside its lane's budget; of a lane without one: served

    @property
    def ttft(self) -> float:
        """Seconds from when it was due to its first token; infinite if there was none."""
        return self.first - self.ask.due if self.status == 200 else inf


@dataclass(frozen=True, slots=True)
class Run:
    """All requests of one server."""

    seen: Sequence[Seen]
    start: float  # of the monotonic clock, seconds

    def of(self, lanes: Collection[str] = INTERACTIVE) -> list[Seen]:
        return [each for each in self.seen if each.ask.lane in lanes]

    def refused(self, lanes: Collection[str] = INTERACTIVE) -> int:
        """Requests that were not answered with 200, whatever the reason."""
        return sum(each.status != 200 for each in self.of(lanes))

    def good(self, lanes: Collection[str] = INTERACTIVE) -> float:
        """Share of the offered requests."""
        mine = self.of(lanes)
        return sum(each.good for each in mine) / len(mine)

    def ttft(self, until: float = inf) -> float:
        """95th percentile, nearest rank, of the interactive requests, in seconds.

        A request that was not served has waited for ever. until: only requests that were due by
        then; infinite if there are none.
        """
        return _p95([each.ttft for each in self.of() if each.ask.due <= until])

    @property
    def served_ttft(self) -> float:
        """Likewise, of the requests that were served; infinite if none was."""
        return _p95([each.ttft for each in self.of() if each.status == 200])

    @property
    def flooded(self) -> float:
        """When the last nightly answer ended; seconds after the start."""
        return max(each.end for each in self.of(NIGHTLY))

    @property
    def rate(self) -> float:
        """The nightly job's tokens per second, until its last one."""
        done = sum(each.ask.tokens for each in self.of(NIGHTLY) if each.status == 200)
        return done / (self.flooded - FLOOD)


def _p95(waits: list[float]) -> float:
    return sorted(waits)[ceil(0.95 * len(waits)) - 1] if waits else inf


def prompts() -> Callable[[random.Random], str]:
    """20 to 60 words from anywhere in the corpus."""
    words = read_corpus().split()

    def prompt(draw: random.Random) -> str:
        at = draw.randrange(len(words) - 60)
        return " ".join(words[at : at + draw.randint(20, 60)])

    return prompt


def asks(lanes: Collection[str]) -> list[Ask]:
    """The requests of these lanes: the same whichever other lanes there are."""
    prompt = prompts()

    def arriving(lane: str, rate: float, tokens: int) -> Iterator[Ask]:
        draw, at = random.Random(f"{lane} {SEED}"), BEGIN
        while (at := at + draw.expovariate(rate)) < END:
            yield Ask(at, lane, draw.randint(tokens // 2, tokens), prompt(draw))

    draw = random.Random(f"nightly {SEED}")
    made = [
        *arriving("voice", 3.0, 12),
        *arriving("chat", 4.0, 40),
        *[Ask(FLOOD, "nightly", ANSWER, prompt(draw)) for _ in range(COUNT)],
    ]
    mine = [each for each in made if each.lane in lanes]
    return sorted(mine, key=lambda each: each.due)


async def ask(client: httpx2.AsyncClient, each: Ask, start: float) -> Seen:
    """The first token stands at the time of sending plus the engine's own time to it."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(start + each.due - loop.time())
    sent = loop.time() - start
    body = {"prompt": each.prompt, "max_tokens": each.tokens, "ignore_eos": True}
    answer = await client.post("/v1/completions", json=body, headers={"X-Headway-Lane": each.lane})
    end = loop.time() - start
    if answer.status_code != 200:
        return Seen(each, answer.status_code, 0.0, end, False)
    told = answer.json()
    times = told["metrics"]
    first = sent + times["time_to_first_token_ms"] / 1e3
    most, gap, whole_by = LIMITS.get(each.lane, (inf, inf, inf))
    good = first - each.due <= most and times["mean_itl_ms"] / 1e3 <= gap
    good = good and end - each.due <= whole_by
    whole = told["usage"]["completion_tokens"] == each.tokens
    return Seen(each, 200, first, end, good and whole)


async def offered(served: Served, asked: Collection[Ask]) -> Run:
    """Each of these requests when it is due, until all have their answers."""
    url = f"http://{served.host}:{served.port}"
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=120) as client:
        await client.post("/v1/completions", json={"prompt": "warm", "max_tokens": 4})
        start = asyncio.get_running_loop().time() + 0.5
        seen = await asyncio.gather(*[ask(client, each, start) for each in asked])
    return Run(seen, start)


def step_of(run: Run, journal: Path) -> float:
    """Seconds of the median step while the nightly job runs and other requests may come. The
    engine's times in the journal are of the same clock."""
    with journal.open() as file:
        scheduler, _ = replay(*read(file))
    begin, end = ((run.start + at) * 1e9 for at in (BEGIN, run.flooded))
    steps = [row.nanoseconds for row in scheduler.ledger.steps if begin <= row.began < end]
    return median(steps) / 1e9
