"""Does our batcher answer earlier than others, and what of the ideal rate is left in overload?

A function that takes 5 ms and 0.2 ms an item, at most 32 at once, so 2,807 items a second at best.
One asyncio client in the batcher's own process offers items at 80 % and at 150 % of that rate, by
Poisson arrivals that are the same for all, and times each from its scheduled arrival. Each
contender waits 5 ms for others where it must wait at all: `batched` (its asyncio decorator), Ray
Serve (`@serve.batch` behind a handle) and headway.Batcher, once as it comes (no window) and once
with 5 ms. Each run is a process of its own, in turn; a contender that cannot be had is a row that
says so. At 80 % its p95 counts, at 150 % its rate; headway refuses what it has no place for, the
others hold all in memory, so their p95 there grows with the length of the run.

    python -m benchmarks.batcher [--seconds 8] [--rounds 3] [--check]
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.batcher.contender import IDEAL, LOADS
from benchmarks.peers.environments import Kit, MissingError, environment, last_words
from benchmarks.report import Figure, finish

BUILD = Path(__file__).parents[2] / ".build" / "batcher"
OURS, WINDOW = "headway", "headway, 5 ms"
KITS = {"batched": Kit([["batched"]]), "ray-serve": Kit([["ray[serve]"]])}
CONTENDERS = (OURS, WINDOW, *KITS)
SEED = 1
Results = dict[tuple[str, float], list[dict[str, float]]]  # by contender and load, its rounds


def run(name: str, load: float, seconds: float, seed: int) -> dict[str, float]:
    """What one contender did at one load. Raises MissingError."""
    python = Path(sys.executable)
    if name in KITS:
        python = environment(BUILD, name, KITS[name])
    script = Path(__file__).with_name("contender.py")
    BUILD.mkdir(parents=True, exist_ok=True)
    said = BUILD / "said.json"  # a file, because Ray writes to the standard output
    said.unlink(missing_ok=True)
    words = [str(python), str(script), name, str(load), str(seconds), str(seed), str(said)]
    root = Path(__file__).parents[2]
    variables = {**os.environ, "PYTHONPATH": str(root / "src"), "RAY_USAGE_STATS_ENABLED": "0"}
    limit = 20 * seconds + 120
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, env=variables)
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"it did not end within {limit:g} s") from error
    if done.returncode or not said.exists():
        raise MissingError(last_words(done.stderr))
    answer: dict[str, float] = json.loads(said.read_text())
    return answer


def measured(rounds: int, seconds: float) -> tuple[Results, dict[str, str]]:
    """Of each contender and load its rounds, and why those are missing that are."""
    results: Results = defaultdict(list)
    missing = dict[str, str]()
    for turn in range(rounds):
        for load in LOADS:
            for name in CONTENDERS:
                if name in missing:
                    continue
                try:
                    results[name, load].append(run(name, load, seconds, SEED + turn))
                except MissingError as error:
                    missing[name] = str(error)
                print(f"round {turn + 1}: {name} at {load:.0%}", flush=True)
    return results, missing


def table(results: Results, missing: dict[str, str]) -> Table:
    """Medians of the rounds."""
    made = Table(title=f"5 ms + 0.2 ms an item, {IDEAL:,.0f} items a second at best")
    columns = ("load", "items/s", "of the ideal", "p50 ms", "p95 ms", "p99 ms", "refused")
    for column in ("batcher", *columns):
        made.add_column(column, justify="left" if column == "batcher" else "right")
    for name in CONTENDERS:
        for load in LOADS:
            if runs := results.get((name, load)):
                of = {key: median([each[key] for each in runs]) for key in runs[0]}
                times = [f"{of[key]:.1f}" for key in ("p50", "p95", "p99")]
                rates = f"{of['rate']:,.0f}", f"{of['rate'] / IDEAL:.1%}"
                made.add_row(name, f"{load:.0%}", *rates, *times, f"{of['refused']:.0%}")
        if name in missing:
            made.add_row(name, f"missing: {missing[name]}")
    return made


def figures(results: Results, missing: dict[str, str]) -> list[Figure]:
    low, high = LOADS
    made = [
        Figure(
            "ideal_share_at_150", [each["rate"] / IDEAL for each in results[OURS, high]], least=0.93
        )
    ]
    others = [name for name in KITS if name not in missing]
    if others:
        best = min(others, key=lambda name: median([each["p95"] for each in results[name, low]]))
        pairs = zip(results[OURS, low], results[best, low], strict=True)
        ratios = [own["p95"] / theirs["p95"] for own, theirs in pairs]
        made.append(Figure(f"p95_vs_{best}", ratios, most=0.75))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure falls short")
    given = parser.parse_args()
    results, missing = measured(given.rounds, given.seconds)
    Console(width=100).print(table(results, missing))
    return finish("batcher", __doc__ or "", SEED, figures(results, missing))


if __name__ == "__main__":
    sys.exit(main())
