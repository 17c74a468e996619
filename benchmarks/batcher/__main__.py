"""Does our batcher answer earlier than others, and what of the ideal rate is left in overload?

A function that takes 5 ms and 0.2 ms an item, at most 32 at once, so 2,807 items a second at best.
One asyncio client in the batcher's own process offers items at 80 % and at 150 % of that rate, by
Poisson arrivals that are the same for all, and times each item from its scheduled arrival. Each
contender has a row for each of its windows: `batched` (its asyncio decorator; its default is 5 ms),
Ray Serve (`@serve.batch` behind a handle; its default is 10 ms) and headway.Batcher, by default
(none) and with 5 ms. Each run is a process of its own, in turn; a contender that cannot be
installed has a row that says so. At 80 % the p95 counts, at 150 % the rate. headway refuses items
that it has no place for; the others hold all in memory, so their p95 there grows with the length of
the run.

`p95_vs_best` is headway's p95 at 80 %, by default, over that of the best row of the others. A
refused item is in no p95, so `refused_at_80`, the share of the worst round, has an aim of its own.
The exit status is 1 if headway is missing.

    python -m benchmarks.batcher [--seconds 8] [--rounds 3] [--check]
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.batcher.contender import IDEAL, LOADS
from benchmarks.batcher.settings import HIGH, LOW, Results, Setting, best, left_out, medians, ratios
from benchmarks.peers.environments import Kit, MissingError, environment, last_words
from benchmarks.report import Figure, finish

BUILD = Path(__file__).parents[2] / ".build" / "batcher"
OURS = Setting("headway")
KITS = {"batched": Kit([["batched"]]), "ray-serve": Kit([["ray[serve]"]])}
OTHERS = [
    *(Setting("batched", wait) for wait in (0.1, 1, 5)),
    *(Setting("ray-serve", wait) for wait in (0.1, 1, 10)),
]
CONTENDERS = (OURS, Setting("headway", 5), *OTHERS)
SEED = 1


def run(setting: Setting, load: float, seconds: float, seed: int) -> dict[str, float]:
    """What one contender did at one load. Raises MissingError."""
    python, name = Path(sys.executable), setting.library
    if name in KITS:
        python = environment(BUILD, name, KITS[name])
    script = Path(__file__).with_name("contender.py")
    BUILD.mkdir(parents=True, exist_ok=True)
    said = BUILD / "said.json"  # a file, because Ray writes to the standard output
    said.unlink(missing_ok=True)
    given = [setting.wait, load, seconds, seed, said]
    words = [str(python), str(script), name, *map(str, given)]
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


def measured(rounds: int, seconds: float) -> tuple[Results, dict[Setting, str]]:
    """The rounds of each contender and load, and why the missing contenders are missing."""
    results = defaultdict[tuple[Setting, float], list[dict[str, float]]](list)
    missing = dict[Setting, str]()
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


def table(results: Results, missing: dict[Setting, str]) -> Table:
    """Medians of the rounds."""
    made = Table(title=f"5 ms + 0.2 ms an item, {IDEAL:,.0f} items a second at best")
    columns = ("load", "items/s", "of the ideal", "p50 ms", "p95 ms", "p99 ms", "refused")
    for column in ("batcher", *columns):
        made.add_column(column, justify="left" if column == "batcher" else "right")
    for setting in CONTENDERS:
        for load in LOADS:
            if runs := results.get((setting, load)):
                of = medians(runs)
                times = [f"{of[key]:.1f}" for key in ("p50", "p95", "p99")]
                rates = f"{of['rate']:,.0f}", f"{of['rate'] / IDEAL:.1%}"
                made.add_row(str(setting), f"{load:.0%}", *rates, *times, f"{of['refused']:.1%}")
        if setting in missing:
            made.add_row(str(setting), f"missing: {missing[setting]}")
    return made


def figures(results: Results, missing: dict[Setting, str]) -> list[Figure]:
    """Contenders that are missing, if only in a later round, are left out of the comparison. Ends
    the process if headway is missing."""
    if OURS in missing:
        raise SystemExit(f"headway is missing: {missing[OURS]}")
    shares = [each["rate"] / IDEAL for each in results[OURS, HIGH]]
    made = [
        Figure("ideal_share_at_150", shares, least=0.93),
        left_out(results[OURS, LOW], "refused"),
    ]
    others = [each for each in OTHERS if each not in missing]
    if other := best(results, others, LOW, "p95"):
        print(f"the best p95 of the others: {other}")
        made.append(Figure("p95_vs_best", ratios(results, OURS, other, LOW, "p95"), most=0.75))
    else:
        print("p95_vs_best is not judged: all others are missing")
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
