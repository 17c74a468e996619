"""explain: the stages of each request of a storm sum to its wall time."""

import json
import random
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from sqlalchemy import select

from benchmarks.ledger.load import PATH, SEED, config_of
from benchmarks.report import Figure
from benchmarks.server_overhead.served import Served, serving
from headway.store.ledger.ledger_tables import REQUESTS
from headway.store.ledger.reading import LedgerReader


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
