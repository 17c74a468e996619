"""What all parts need: a server under load, and what its ledger holds."""

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import httpx2
from sqlalchemy import select

from benchmarks.server_overhead.served import Served
from headway.store.ledger.check import problems_of
from headway.store.ledger.ledger_tables import MINUTES, REQUESTS
from headway.store.ledger.reading import LedgerReader

SEED = 1
PATH = "/v1/completions"
CALLERS = 6
PRICES = {"per_hour": 3.7, "per_million_prompt": 1.0, "per_million_answer": 3.0}
LANES = ("interactive", "standard", "offline")


class Load(threading.Thread):
    """A caller that asks again and again. answered: X-Request-Ids, and when they were answered."""

    def __init__(self, served: Served, number: int, tokens: int = 24) -> None:
        super().__init__(daemon=True)
        self.url = f"http://{served.host}:{served.port}"
        self.number, self.tokens = number, tokens
        self.draw = random.Random(SEED + number)
        self.answered: list[tuple[str, float, float]] = []  # id, end and seconds
        self.failed: list[str] = []
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        with httpx2.Client(base_url=self.url, timeout=60) as client:
            for count in range(10**6):
                if self.over.is_set() or not self._ask(client, count):
                    return

    def _ask(self, client: httpx2.Client, count: int) -> bool:
        """Whether to go on: not if the server is gone."""
        began = monotonic()
        body = {
            "prompt": f"def f{self.number}_{count}(",
            "max_tokens": self.draw.randint(1, 2 * self.tokens),
            "n": self.draw.choice([1, 1, 2]),
        }
        headers = {"x-headway-lane": self.draw.choice(LANES), "x-headway-workflow": "bench"}
        try:
            answer = client.post(PATH, json=body, headers=headers)
        except httpx2.HTTPError as error:
            self.failed.append(type(error).__name__)
            return False
        now = monotonic()
        if answer.status_code == 200:
            self.answered.append((answer.json()["id"], now, now - began))
        else:
            self.failed.append(str(answer.status_code))
        return True


@contextmanager
def under_load(served: Served) -> Iterator[list[Load]]:
    """While the block runs, CALLERS ask."""
    callers = [Load(served, number) for number in range(CALLERS)]
    try:
        yield callers
    finally:
        for each in callers:
            each.over.set()
        for each in callers:
            each.join()


def config_of(url: str) -> dict[str, Any]:
    return {"ledger": {"url": url}, "prices": PRICES, "logs": {"access": False}}


def calls_in(url: str) -> set[str]:
    reader = LedgerReader(url)
    with reader.begin() as connection:
        found = set(connection.execute(select(REQUESTS.c.call)).scalars())
    reader.close()
    return found


def unrecorded_in(url: str) -> float:
    """Seconds."""
    reader, mine = LedgerReader(url), MINUTES.c.account == "unrecorded"
    with reader.begin() as connection:
        found = list(connection.execute(select(MINUTES.c.nanoseconds).where(mine)).scalars())
    reader.close()
    return float(sum(found)) / 1e9


def wrong_in(url: str) -> list[str]:
    reader = LedgerReader(url)
    found = problems_of(reader)
    reader.close()
    for line in found[:10]:
        print(f"wrong: {line}", file=sys.stderr)
    return found
