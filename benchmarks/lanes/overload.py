"""What share of requests is inside budget when four lanes are offered twice what a server can do?

`headway serve` with the embedded model and 16 slots. Voice (first token within 300 ms), chat (1 s),
reports (the whole answer within 3 s) and a nightly job without a budget come in equal parts, as one
Poisson process, with answers of 8, 30 or 80 tokens. The capacity is the answers per second that
twice as many callers as there are slots get from the server by priority, each asking again at once.

Each strategy gets the same requests on a server of its own, the strategies in turn, ROUNDS times.
By budgets, voice and reports are refused when they are late, which the other strategies cannot do.
The figure is the share of the requests with a budget, refused ones included, that are inside it.
`budgets_over` is this share over the better of the others, round by round.

In `budgets-kept` the nightly job also keeps one of the slots. In the other runs it may wait until
the flood is over.

The client is on the same processors, and takes its part of them.

    python -m benchmarks.lanes.overload [--rounds 3]        two minutes a round
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from benchmarks.lanes.cost import learned
from benchmarks.lanes.load import LANES, LIMITS, SEED, SLOTS, Ask, Run, offered, prompts
from benchmarks.report import Figure, finish
from benchmarks.server_overhead.served import serving

ROUNDS, OVER = 3, 2.0
FLOOD, MEASURED = 8.0, 5.0  # seconds
ANSWERS = (8, 30, 80)  # tokens
NAMES = ("voice", "chat", "report", "nightly")
OFFERED: dict[str, dict[str, Any]] = {**LANES, "report": {"e2e": "3s", "priority": 1}}
KEPT = "budgets-kept"
STRATEGIES = ("first-come", "priority", "budgets", KEPT)


def config(strategy: str, cost: Path) -> dict[str, Any]:
    engine: dict[str, Any] = {"slots": SLOTS, "strategy": strategy.removesuffix("-kept")}
    lanes = {name: dict(lane) for name, lane in OFFERED.items()}
    if engine["strategy"] == "budgets":
        engine["cost"] = str(cost)
        lanes["voice"]["late"] = lanes["report"]["late"] = "refuse"
    if strategy == KEPT:
        lanes["nightly"]["slots"] = {"least": 1}
    if strategy == "first-come":
        for lane in lanes.values():
            del lane["priority"]
    return {"engine": engine, "lanes": lanes}


def arriving(rate: float) -> Iterator[Ask]:
    """Poisson arrivals for as long as the flood lasts."""
    prompt, draw, at = prompts(), random.Random(SEED), 0.0
    while (at := at + draw.expovariate(rate)) < FLOOD:
        yield Ask(at, draw.choice(NAMES), draw.choice(ANSWERS), prompt(draw))


async def capacity(url: str) -> float:
    """Answers per second, after two seconds."""
    loop, prompt, ended = asyncio.get_running_loop(), prompts(), list[float]()
    begin = loop.time() + 2.0

    async def caller(client: httpx2.AsyncClient, number: int) -> None:
        draw = random.Random(number)
        while loop.time() < begin + MEASURED:
            body = {"prompt": prompt(draw), "max_tokens": draw.choice(ANSWERS), "ignore_eos": True}
            headers = {"X-Headway-Lane": "nightly"}
            answer = await client.post("/v1/completions", json=body, headers=headers)
            answer.raise_for_status()
            ended.append(loop.time())

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=120) as client:
        await asyncio.gather(*[caller(client, number) for number in range(2 * SLOTS)])
    return sum(begin <= at < begin + MEASURED for at in ended) / MEASURED


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    given = parser.parse_args()
    runs: dict[str, list[Run]] = {strategy: [] for strategy in STRATEGIES}
    with TemporaryDirectory() as made:
        folder = Path(made)
        cost = learned(folder)
        with serving(config("priority", cost), folder) as served:
            most = asyncio.run(capacity(f"http://{served.host}:{served.port}"))
        asked = list(arriving(OVER * most))
        print(f"capacity {most:.1f} answers a second; {len(asked)} requests in {FLOOD:g} s")
        for number in range(given.rounds):
            for strategy in STRATEGIES:
                with serving(config(strategy, cost), folder) as served:
                    run = asyncio.run(offered(served, asked))
                runs[strategy].append(run)
                parts = [f"{name} {run.good((name,)):.1%}" for name in NAMES]
                print(f"round {number + 1}, {strategy}: {', '.join(parts)}", flush=True)
    good = {name: [run.good(tuple(LIMITS)) for run in of] for name, of in runs.items()}
    others = [max(pair) for pair in zip(good["first-come"], good["priority"], strict=True)]
    found = [Figure("capacity", [most], unit="answers/s")]
    found += [Figure(f"{name}_good", shares) for name, shares in good.items()]
    ratios = [mine / best for mine, best in zip(good["budgets"], others, strict=True)]
    found.append(Figure("budgets_over", ratios, least=1.0, unit="x"))
    return finish("lanes_overload", __doc__ or "", SEED, found)


if __name__ == "__main__":
    sys.exit(main())
