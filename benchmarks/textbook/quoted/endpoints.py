"""The four endpoints with their windows, from examples/four_endpoints.yaml, as a user runs them."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.textbook.part import SIMULATED, Part, Table, ms
from benchmarks.textbook.runs import ACCELERATOR, MODEL

EXAMPLE = Path("examples/four_endpoints.yaml")
WINDOWS = {"chat": 25, "search": 25, "summaries": 250, "completion": 10}  # quoted, ms
QUEUES = {"chat": 240, "search": 260, "summaries": 410, "completion": 120}  # quoted: p95, ms
TOKENS = {"chat": 5200, "search": 5100, "summaries": 7800, "completion": 4100}  # quoted, a second
QUIET, FULL = ("2", "600"), ("20", "120")  # requests a second, seconds of them
GROUPS, JOINING, BUDGETS = "dynamic-lanes", "continuous-chunk-512", "budgets"


def simulated(rate: str, seconds: str, strategies: str) -> dict[str, Any]:
    """By strategy, the run that `headway simulate` reports."""
    headway = [sys.executable, "-m", "headway"]
    with TemporaryDirectory() as folder:
        cost = f"{folder}/cost.json"
        made = ["calibrate", MODEL, "--accelerator", ACCELERATOR, "--out", cost]
        asked = ["simulate", "--cost", cost, "--lanes", str(EXAMPLE)]
        asked += ["--rate", rate, "--seconds", seconds, "--strategies", strategies]
        for words in (made, [*asked, "--out", folder]):
            subprocess.run([*headway, *words], check=True, capture_output=True)
        report = json.loads(Path(folder, "report.json").read_text())
    return {run["name"]: run for run in report["strategies"]}


def offered(run: Mapping[str, Any], seconds: int) -> dict[str, float]:
    """Tokens a second of each endpoint, prompts and answers, as asked for."""
    columns, rows = run["requests"]["columns"], run["requests"]["rows"]
    lane, prompt, answer = (columns.index(name) for name in ("lane", "prompt", "generated"))
    asked = dict.fromkeys(WINDOWS, 0.0)
    for row in rows:
        asked[row[lane]] += (row[prompt] + row[answer]) / seconds
    return asked


def shown(value: float | str) -> str:
    """A percentile of the report: nanoseconds, or that it was not reached."""
    return str(value) if isinstance(value, str) else ms(value)


def endpoints() -> Part:
    figures, rows = dict[str, float](), list[list[str]]()
    quiet = simulated(*QUIET, GROUPS)[GROUPS]
    full = simulated(*FULL, ",".join((GROUPS, JOINING, BUDGETS)))
    asked = offered(full[JOINING], int(FULL[1]))
    for name in WINDOWS:
        waits = [quiet["latency"][name]["queue_p95"]]
        waits += [full[way]["latency"][name]["queue_p95"] for way in (GROUPS, JOINING, BUDGETS)]
        for key, wait in zip(("quiet", "groups", "joining", "budgets"), waits, strict=True):
            if not isinstance(wait, str):
                figures[f"{name}_{key}_ms"] = wait / 1e6
        figures[f"{name}_tokens"] = asked[name]
        cells = [f"{WINDOWS[name]}", f"{QUEUES[name]}", *map(shown, waits)]
        rows.append([name, *cells, f"{TOKENS[name]:,}", f"{asked[name]:,.0f}"])
    for key, way in (("groups", GROUPS), ("joining", JOINING), ("budgets", BUDGETS)):
        run = full[way]
        figures[f"{key}_rate"] = run["engine"]["requests_per_second"]
        figures[f"{key}_unserved"] = run["engine"]["unserved"]
        kept = [each["attainment"] for each in run["latency"].values()]
        figures[f"{key}_kept"] = min(kept) * 100
    figures["quiet_padding"] = quiet["engine"]["padding"] * 100
    figures["tokens"] = sum(asked.values())
    figures["quoted_tokens"] = sum(TOKENS.values())
    head = ["p95 of the queue, ms", "window", "said", "windows, 2 requests a second"]
    head += ["windows, 20", "continuous, 20", "budgets, 20", "tokens a second, said", "asked for"]
    return Part(SIMULATED, [Table(head, rows)], figures)
