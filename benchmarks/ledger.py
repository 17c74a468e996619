"""Does the ledger keep its sums when servers are killed, and what does it cost the requests?

kill: a server under load is ended by SIGKILL at a random moment, fifty times for SQLite and fifty
times for PostgreSQL, and started again. Rows of answers that came more than a second before the
kill must be there; every row must be whole; every nanosecond and all money must be in one account.

away: PostgreSQL is stopped for a minute under load, in the middle of three minutes. No request may
fail, the latencies of the minute are compared with those around it, and afterwards all rows must be
there.

explain: a storm of requests of many kinds, most of which wait, some of which are refused, cancelled
or left by their clients. The stages of each must sum to its wall time.

overhead: tokens per second with a ledger and without, in turns on the same machine.

    python -m benchmarks.ledger [--part kill|away|explain|overhead] [--kills 50] [--check]
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import httpx2
from sqlalchemy import select

from benchmarks.report import Figure, finish
from benchmarks.server_overhead.served import Served, serving
from headway.store.ledger.check import problems_of
from headway.store.ledger.ledger_tables import MINUTES, REQUESTS
from headway.store.ledger.reading import LedgerReader

postgresql = import_module("tests.postgresql").postgresql
SEED = 1
PATH = "/v1/completions"
UPTIME = 0.3, 4.0  # seconds that a server serves before it is killed
CALLERS = 6
PRICES = {"per_hour": 3.7, "per_million_prompt": 1.0, "per_million_answer": 3.0}
LANES = ("interactive", "standard", "offline")


class Load(threading.Thread):
    """A caller who asks again and again. answered: X-Request-Ids, and when they were answered."""

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


def killed(folder: Path, url: str, kills: int, name: str) -> list[Figure]:
    draw, oldest, wrong = random.Random(SEED), list[float](), 0
    answered = lost = 0
    for number in range(kills):
        running = serving(config_of(url), folder, log=folder / "log")
        with running as served, under_load(served) as callers:
            sleep(draw.uniform(*UPTIME))
            at = monotonic()
            os.kill(served.pid, signal.SIGKILL)
        wrong += len(wrong_in(url))
        kept = calls_in(url)
        gone = [at - end for each in callers for id, end, _ in each.answered if id not in kept]
        answered += sum(len(each.answered) for each in callers)
        lost += len(gone)
        oldest.append(max(gone, default=0.0))
        print(f"{name}: killed {number + 1} of {kills}; {lost} of {answered} lost", file=sys.stderr)
    with serving(config_of(url), folder, log=folder / "log"):
        pass  # it repairs what the last one has left, and ends well
    wrong += len(wrong_in(url))
    reader, open = LedgerReader(url), MINUTES.c.account == "open"
    with reader.begin() as connection:
        left = sum(connection.execute(select(MINUTES.c.nanoseconds).where(open)).scalars())
    reader.close()
    return [
        Figure(f"{name}_kills", [kills]),
        Figure(f"{name}_answered", [answered]),
        Figure(f"{name}_lost", [lost]),
        Figure(f"{name}_oldest_lost", [max(oldest)], most=1.0, unit="s"),
        Figure(f"{name}_wrong_sums", [wrong], most=0),
        Figure(f"{name}_left_open", [left], most=0, unit="ns"),
        Figure(f"{name}_unrecorded", [unrecorded_in(url)], unit="s"),
    ]


def kill(kills: int) -> list[Figure]:
    with TemporaryDirectory() as made, postgresql(_below(made, "pg")) as url:
        folder = Path(made)
        figures = killed(folder, str(folder / "ledger.db"), kills, "sqlite")
        return figures + killed(folder, url, kills, "postgres")


def _below(made: str, name: str) -> Path:
    folder = Path(made) / name
    folder.mkdir()
    Path(made).chmod(0o755)
    return folder


def away(seconds: float) -> list[Figure]:
    with TemporaryDirectory() as made, postgresql(_below(made, "pg")) as url:
        folder = Path(made)
        data = folder / "pg" / "data"
        with serving(config_of(url), folder, log=folder / "log") as served:
            with under_load(served) as callers:
                marks = [monotonic()]
                sleep(seconds)
                marks.append(monotonic())
                with stopped(data, seconds):
                    marks.append(monotonic())
                sleep(seconds)
                marks.append(monotonic())
            asked = {id for each in callers for id, _, _ in each.answered}
            failed = [why for each in callers for why in each.failed]
        spans = {
            name: [
                took * 1_000
                for each in callers
                for _, end, took in each.answered
                if began <= end < until
            ]
            for name, began, until in zip(
                ("before", "away", "after"), marks[:-1], marks[1:], strict=True
            )
        }
        missing = asked - calls_in(url)
        return [
            *[Figure(f"p50_{name}", [median(took)], unit="ms") for name, took in spans.items()],
            *[Figure(f"answered_{name}", [len(took)]) for name, took in spans.items()],
            Figure("failed", [len(failed)], most=0),
            Figure("rows_missing", [len(missing)], most=0),
            Figure("wrong_sums", [len(wrong_in(url))], most=0),
            Figure("unrecorded", [unrecorded_in(url)], unit="s"),
        ]


@contextmanager
def stopped(data: Path, seconds: float) -> Iterator[None]:
    """Suspend all of PostgreSQL's processes for so long. Connections hang, as when a network is
    cut: the worst case, because nothing says so."""
    first = int((data / "postmaster.pid").read_text().split()[0])
    group = [first, *_children(first)]
    for pid in group:
        os.kill(pid, signal.SIGSTOP)
    try:
        sleep(seconds)
        yield
    finally:
        for pid in group:
            os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(each) for each in done.stdout.split()]


def explain(requests: int) -> list[Figure]:
    """Bursts that overfill two small lanes, with choices, stop strings, cancels and refusals."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        url = str(folder / "ledger.db")
        lanes = {
            "chat": {"ttft": "500ms", "queue": "3s", "max_waiting": 24, "slots": {"most": 3}},
            "bulk": {"priority": 1, "max_waiting": 24, "e2e": "4s"},
        }
        config = {**config_of(url), "lanes": lanes, "engine": {"slots": 4}}
        with serving(config, folder, log=folder / "log") as served:
            threads = [
                threading.Thread(target=_storm, args=(served, each, requests // 32))
                for each in range(32)
            ]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        reader = LedgerReader(url)
        with reader.begin() as connection:
            rows = connection.execute(select(REQUESTS)).all()
        reader.close()
    off = [row for row in rows if sum(json.loads(row.stages).values()) != row.wall_ns]
    negative = [row for row in rows if min(json.loads(row.stages).values(), default=0) < 0]
    ends = sorted({f"{row.finish} {row.code}".strip() for row in rows})
    stages = sorted({name for row in rows for name in json.loads(row.stages)})
    print(f"ends: {', '.join(ends)}\nstages: {', '.join(stages)}", file=sys.stderr)
    return [
        Figure("rows", [len(rows)], least=requests),
        Figure("ends", [len(ends)]),
        Figure("stages", [len(stages)]),
        Figure("rows_whose_stages_do_not_sum", [len(off)], most=0),
        Figure("rows_with_a_negative_stage", [len(negative)], most=0),
    ]


def _storm(served: Served, number: int, count: int) -> None:
    draw = random.Random(SEED + number)
    with httpx2.Client(base_url=f"http://{served.host}:{served.port}", timeout=60) as client:
        for each in range(count):
            body: dict[str, Any] = {
                "prompt": "x = " * draw.randint(1, 120),
                "max_tokens": draw.randint(1, 40),
                "n": draw.choice([1, 1, 1, 2]),
                "stream": True,
            }
            if draw.random() < 0.2:
                body["stop"] = [draw.choice(["e", "\n", "("])]
            headers = {"x-headway-lane": draw.choice(["chat", "bulk"])}
            if draw.random() < 0.2:
                headers["x-headway-timeout-ms"] = str(draw.randint(20, 400))
            leaves = draw.random() < 0.15
            if draw.random() < 0.1:
                headers["x-headway-supersede"] = f"line-{each % 3}"
            with client.stream("POST", PATH, json=body, headers=headers) as answer:
                for _ in answer.iter_lines():
                    if leaves:
                        break


def overhead(pairs: int, seconds: float) -> list[Figure]:
    """The share of tokens per second that a ledger costs, pair by pair, in changing order."""
    shares, alone = list[float](), list[float]()
    with TemporaryDirectory() as made:
        folder = Path(made)
        kept = config_of(str(folder / "ledger.db"))
        without = {name: each for name, each in kept.items() if name != "ledger"}
        for pair in range(pairs):
            order = [kept, without] if pair % 2 else [without, kept]
            rates = {"ledger" in config: _rate(config, folder, seconds) for config in order}
            shares.append(1 - rates[True] / rates[False])
            alone.append(rates[False])
            print(f"pair {pair + 1}: {shares[-1]:+.2%}", file=sys.stderr)
    return [
        Figure("ledger_overhead", shares, most=0.01),
        Figure("tokens_per_second_without", alone),
    ]


def _rate(config: dict[str, Any], folder: Path, seconds: float) -> float:
    """Generated tokens per second of a server that is kept full, by its own count."""
    running = serving(config, folder, log=folder / "log")
    with running as served, under_load(served), httpx2.Client(timeout=60) as client:
        client.base_url = f"http://{served.host}:{served.port}"
        sleep(3)
        before, began = _generated(client), monotonic()
        sleep(seconds)
        return (_generated(client) - before) / (monotonic() - began)


def _generated(client: httpx2.Client) -> float:
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("vllm:generation_tokens_total"):
            return float(line.rpartition(" ")[2])
    raise SystemExit("the server does not count its tokens")


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=["kill", "away", "explain", "overhead"])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="of away, and of each turn")
    parser.add_argument("--requests", type=int, default=3_200)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--check", action="store_true")
    asked, figures = parser.parse_args(), list[Figure]()
    if asked.part in (None, "kill"):
        figures += kill(asked.kills)
    if asked.part in (None, "away"):
        figures += away(asked.seconds)
    if asked.part in (None, "explain"):
        figures += explain(asked.requests)
    if asked.part in (None, "overhead"):
        figures += overhead(asked.pairs, asked.seconds)
    return finish("ledger", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
