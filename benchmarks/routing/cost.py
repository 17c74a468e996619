"""How much of a processor does a route of the server cost for each request?

The whole application runs in this process, without sockets, over engines that compute nothing (the
tests' fake ones): one completion of one token at a time. The same request goes to a model directly
and through routes that ask one model, in turns, so that the machine's state affects both alike. A
figure is the processor time of the whole process, engine threads included, that a request takes
beyond the direct one. A vote of three shows what three attempts take.

    python -m benchmarks.routing.cost [--rounds 9] [--requests 100] [--profile] [--check]
"""

import argparse
import asyncio
import cProfile
import pstats
from collections import defaultdict
from importlib import import_module
from statistics import median
from time import process_time

import httpx2
from rich.console import Console
from rich.table import Table

from benchmarks.report import Figure, finish
from headway.executor.traits import EVERYTHING
from headway.models import EMBEDDED
from headway.server.app import make_app
from headway.server.config.config import ServerConfig
from headway.server.intake.service import Service
from headway.server.intake.tokenizing import AsyncTokenizer

served = import_module("tests.server.running_server")  # its engines, and the embedded tokenizer
DIRECT = "small"
ROUTES = {
    "rules": {"rules": [{"to": "small"}]},
    "least_loaded": {"least_loaded": ["small", "large"]},
    "fallback": {"fallback": ["small", "large"]},
    "cascade": {"cascade": ["small", "large"], "accept": {"regex": "(?s).*"}},
    "vote_of_three": {"ensemble": ["small", "small", "large"], "choose": "majority"},
}
ASK = {"prompt": [5], "max_tokens": 1, "temperature": 0, "ignore_eos": True}
MOST = 1_000  # microseconds


async def spend(client: httpx2.AsyncClient, model: str, requests: int) -> float:
    """Microseconds of the process for each request."""
    begun = process_time()
    for _ in range(requests):
        answer = await client.post("/v1/completions", json={**ASK, "model": model})
        assert answer.status_code == 200, answer.text
    return (process_time() - begun) / requests * 1e6


async def measure(rounds: int, requests: int, profile: bool) -> dict[str, list[float]]:
    asked = {"models": [{"name": "small"}, {"name": "large"}], "routes": ROUTES}
    config = ServerConfig.model_validate(asked)
    made = [served.fake(entry) for entry in config.engines]
    service = Service(config, *made)
    for model in service.models:
        model.ready(AsyncTokenizer(served.tokenizer(), EMBEDDED), frozenset({2}), EVERYTHING)
    transport = httpx2.ASGITransport(make_app(service))
    spent = defaultdict[str, list[float]](list)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for name in (DIRECT, *ROUTES):
            await spend(client, name, 20)
        for _ in range(rounds):
            for name in (DIRECT, *ROUTES):
                spent[name].append(await spend(client, name, requests))
        if profile:
            with cProfile.Profile() as profiled:
                await spend(client, "fallback", requests)
            pstats.Stats(profiled).sort_stats("cumtime").print_stats("headway", 40)
    for each in made:
        await asyncio.to_thread(each.live.close)
    service.close()
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=100, help="of each in a round")
    parser.add_argument("--profile", action="store_true", help="of a fallback, at the end")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure falls short")
    given = parser.parse_args()
    spent = asyncio.run(measure(given.rounds, given.requests, given.profile))
    table = Table(title="processor time of a request", title_justify="left")
    for column in ("asked", "microseconds", "more than directly"):
        table.add_column(column, justify="left" if column == "asked" else "right")
    figures = [Figure("direct", spent[DIRECT], unit="us")]
    for name, each in spent.items():
        more = [a - b for a, b in zip(each, spent[DIRECT], strict=True)]
        table.add_row(name, f"{median(each):.0f}", f"{median(more):+.0f}")
        if name != DIRECT:
            most = MOST if name not in ("vote_of_three",) else None
            figures.append(Figure(f"more_by_{name}", more, most=most, unit="us"))
    Console().print(table)
    return finish("route_cost", __doc__ or "", 0, figures)


if __name__ == "__main__":
    raise SystemExit(main())
