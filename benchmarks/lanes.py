"""What do three lanes see when a batch job and a burst arrive at one small server?

`headway serve` with the embedded model and three lanes: a steady voice endpoint, a chat that is
busy for four seconds, and a nightly job that arrives all at once and takes most of the slots. The
load is open-loop: a request is sent when it is due, however many are unanswered. Each line of the
picture is one request. Its first token stands at its due time plus the response's own time to
first token.

    python -m benchmarks.lanes --write       draws docs/pictures/lanes.svg, half a minute
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from benchmarks.report import Figure, finish, machine
from benchmarks.server_overhead.served import Served, serving
from headway.runs.corpus import read_corpus

SEED, SECONDS, SLOTS, NIGHTLY = 0, 20.0, 16, 12
PICTURE = Path("docs/pictures/lanes.svg")
LANES: dict[str, dict[str, Any]] = {
    "voice": {"ttft": "300ms", "tpot": "60ms", "queue": "1s", "priority": 0},
    "chat": {"ttft": "1s", "tpot": "100ms", "queue": "2s", "priority": 1, "max_waiting": 40},
    "nightly": {"priority": 2},
}
CONFIG = {"engine": {"slots": SLOTS, "strategy": "priority"}, "lanes": LANES}
LIMITS = {"voice": 0.3, "chat": 1.0}  # seconds to the first token; the nightly job has no budget


@dataclass(frozen=True, slots=True)
class Ask:
    due: float  # seconds after the start
    lane: str
    tokens: int  # of the answer


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as its caller saw it; times in seconds after the start."""

    ask: Ask
    status: int
    first: float  # first token; 0: none
    end: float
    good: bool


def asks(draw: random.Random) -> Iterator[Ask]:
    for lane, rate, since, until, tokens in (
        ("voice", 3.0, 0.0, SECONDS, 12),
        ("chat", 4.0, 0.0, SECONDS, 40),
        ("chat", 24.0, 9.0, 13.0, 40),
    ):
        at = since
        while (at := at + draw.expovariate(rate)) < until:
            yield Ask(at, lane, draw.randint(tokens // 2, tokens))
    yield from [Ask(3.0, "nightly", 160)] * NIGHTLY


async def ask(client: httpx2.AsyncClient, each: Ask, prompt: str, start: float) -> Seen:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(start + each.due - loop.time())
    body = {"prompt": prompt, "max_tokens": each.tokens, "ignore_eos": True}
    answer = await client.post("/v1/completions", json=body, headers={"X-Headway-Lane": each.lane})
    end = loop.time() - start
    if answer.status_code != 200:
        return Seen(each, answer.status_code, 0.0, end, False)
    times = answer.json()["metrics"]
    first = each.due + times["time_to_first_token_ms"] / 1e3
    good = first - each.due <= LIMITS.get(each.lane, inf)
    return Seen(each, 200, first, end, good)


async def offered(served: Served) -> list[Seen]:
    draw, words = random.Random(SEED), read_corpus().split()
    all_asks = sorted(asks(draw), key=lambda each: each.due)
    prompts = []
    for _ in all_asks:
        at = draw.randrange(len(words) - 60)
        prompts.append(" ".join(words[at : at + draw.randint(20, 60)]))
    url = f"http://{served.host}:{served.port}"
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=120) as client:
        await client.post("/v1/completions", json={"prompt": "warm", "max_tokens": 4})
        start = asyncio.get_running_loop().time() + 0.5
        pairs = zip(all_asks, prompts, strict=True)
        return list(await asyncio.gather(*[ask(client, each, said, start) for each, said in pairs]))


# -- the picture

WIDTH, LEFT, RIGHT, TOP, FOOT, GAP = 960, 168, 20, 70, 64, 30  # pixels
ROW = {"voice": 3, "chat": 2, "nightly": 5}  # pixels of a request
COLOURS = {"voice": ("#0072b2", "#4ea8de"), "chat": ("#009e73", "#2fc08e")}
COLOURS["nightly"] = ("#8a6fb0", "#b39bd8")
STYLE = """
  .page { fill: #ffffff } text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 } .small { font-size: 11px; fill: #57606a }
  .name { font-size: 13px; font-weight: 600 } .rule { stroke: #d8dee4 } .waits { fill: #b6bcc4 }
  .no { fill: #d1495b }
"""
DARK = """
    .page { fill: #14181d } text { fill: #e6edf3 } .small { fill: #9da7b1 }
    .rule { stroke: #30363d } .waits { fill: #59616b } .no { fill: #ff7b8a }
"""


def picture(seen: Sequence[Seen]) -> str:
    span = max(each.end for each in seen)
    scale = (WIDTH - LEFT - RIGHT) / span
    parts, y = list[str](), TOP
    for lane in LANES:
        mine = [each for each in seen if each.ask.lane == lane]
        parts += _lane(lane, mine, y, scale)
        y += len(mine) * ROW[lane] + GAP
    foot = y - GAP + 8
    rules = []
    for second in range(0, int(span) + 1, 5):
        x = LEFT + second * scale
        rules.append(f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{foot}"/>')
        label = f"{second} s"
        rules.append(_text(x, foot + 14, label, "small", "middle"))
    height = foot + FOOT
    caption = (
        f"One line a request: {len(seen)} in {SECONDS:g} s, {SLOTS} slots, the embedded model on "
        f"{machine()}. Measured by the callers."
    )
    light = "".join(f"  .{name} {{ fill: {each[0]} }}\n" for name, each in COLOURS.items())
    dark = "".join(f"    .{name} {{ fill: {each[1]} }}\n" for name, each in COLOURS.items())
    title = "Three lanes at work: a nightly job at 3 s, a burst of chats from 9 to 13 s"
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title><desc>{escape(caption)}</desc>",
        f"<style>{STYLE}{light}  @media (prefers-color-scheme: dark) {{{DARK}{dark}  }}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
        _text(14, 24, title, "title"),
        _text(14, 43, caption, "small"),
    ]
    return "\n".join([*head, *rules, *parts, *_legend(foot + 42), "</svg>", ""])


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def _box(kind: str, x: float, y: float, width: float, height: float) -> str:
    size = f'width="{max(width, 0.5):.1f}" height="{height}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y}" {size}/>'


def _lane(lane: str, mine: Sequence[Seen], top: int, scale: float) -> list[str]:
    good, refused = sum(each.good for each in mine), [each.status for each in mine]
    budget = f"first token within {LIMITS[lane]:g} s" if lane in LIMITS else "no budget"
    parts = [
        _text(14, top + 10, lane, "name"),
        _text(14, top + 26, budget, "small"),
        _text(
            14,
            top + 42,
            f"{good} of {len(mine)} {'in time' if lane in LIMITS else 'served'}",
            "small",
        ),
    ]
    if no := refused.count(429) + refused.count(408):
        parts.append(_text(14, top + 58, f"{no} told no", "small"))
    for at, each in enumerate(mine):
        y, x = top + at * ROW[lane], LEFT + each.ask.due * scale
        height = ROW[lane] - (0.5 if ROW[lane] < 4 else 1)
        if each.status != 200:
            parts.append(_box("no", x, y, max(4.0, (each.end - each.ask.due) * scale), height))
            continue
        parts.append(_box("waits", x, y, (each.first - each.ask.due) * scale, height))
        width = (each.end - each.first) * scale
        parts.append(_box(lane, LEFT + each.first * scale, y, width, height))
    return parts


def _legend(y: int) -> list[str]:
    parts, x = list[str](), float(LEFT)
    for kind, words in (
        ("waits", "until the first token"),
        ("voice", ""),
        ("chat", ""),
        ("nightly", "while tokens come"),
        ("no", "told no at the door (429), or too late to begin (408)"),
    ):
        parts.append(_box(kind, x, y - 9, 16, 9))
        x += 20
        if words:
            parts.append(_text(x + 2, y, words, "small"))
            x += 20 + 5.8 * len(words)
    return parts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"draw {PICTURE}")
    given = parser.parse_args()
    with TemporaryDirectory() as made, serving(CONFIG, Path(made)) as served:
        seen = asyncio.run(offered(served))
    if given.write:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(picture(seen))
    figures = []
    for lane in LANES:
        mine = [each for each in seen if each.ask.lane == lane]
        share = sum(each.good for each in mine) / len(mine)
        figures.append(Figure(f"{lane}_in_time", [share]))
        figures.append(Figure(f"{lane}_refused", [sum(each.status == 429 for each in mine)]))
        figures.append(Figure(f"{lane}_expired", [sum(each.status == 408 for each in mine)]))
    return finish("lanes", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
