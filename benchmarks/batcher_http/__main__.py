"""How many calls of a batched function does our front answer over HTTP, beside those of others?

The function takes 5 ms and 0.2 ms an item, at most 32 at once, so 2,807 items a second at best. A
client of its own process offers items at 80 % and at 150 % of that rate, one for each request, by
the same Poisson arrivals, and times each from its scheduled arrival. `headway serve`, litserve and
Ray Serve have a front in Python, mosec has one in Rust. The three others wait 5 ms for a fuller
call, each by its own batching. `headway-ledger` is ours with a row of the ledger for each item, in
SQLite. Server and client share the machine's cores. The servers run one after the other, in turn.
One that cannot be had is a row that says so.

The aims are 0.9 of mosec's rate at 150 % and 1.1 of its p95 at 80 %. What the ledger costs is
printed, and has no aim.

    python -m benchmarks.batcher_http [--only NAME...] [--seconds 8] [--rounds 3] [--check]
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from statistics import median
from time import monotonic, sleep

from rich.console import Console
from rich.table import Table

from benchmarks.batcher.contender import IDEAL, LOADS
from benchmarks.peers.environments import Kit, MissingError, environment
from benchmarks.report import Figure, finish

ROOT = Path(__file__).parents[2]
BUILD = ROOT / ".build" / "batcher"
OURS, KEPT, MOSEC = "headway", "headway-ledger", "mosec"
STARTING = 120.0  # seconds
SEED = 1
Results = dict[tuple[str, float], list[dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Front:
    """A server of the function."""

    path: str  # of a call
    package: str  # as pip knows it
    script: str = ""  # in its own environment; empty: it is ours
    address: Sequence[str] = ()  # the script's words before the port


FRONTS = {
    OURS: Front("/v1/functions/work", "headway"),
    KEPT: Front("/v1/functions/work", "headway"),
    MOSEC: Front("/inference", "mosec", "served_by_mosec.py", ("--address", "127.0.0.1", "--port")),
    "litserve": Front("/predict", "litserve", "served_by_litserve.py"),
    "ray-serve": Front("/work", "ray[serve]", "served_by_ray.py"),
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


def command(name: str, port: int) -> list[str]:
    """Raises MissingError."""
    front = FRONTS[name]
    if not front.script:
        target = "benchmarks.batcher_http.served:work"
        kept = ["--ledger", str(new_ledger())] if name == KEPT else []
        return [sys.executable, "-m", "headway.cli", "serve", target, "--port", str(port), *kept]
    python = environment(BUILD, name, Kit([[front.package]]))
    return [str(python), str(Path(__file__).with_name(front.script)), *front.address, str(port)]


def new_ledger() -> Path:
    """Where there is none yet."""
    path = BUILD / "ledger-http.db"
    for each in BUILD.glob(f"{path.name}*"):  # with SQLite's own files
        each.unlink()
    return path


@contextmanager
def serving(name: str) -> Iterator[int]:
    """A server that answers; gives its port. Raises MissingError."""
    port = free_port()
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    variables["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command(name, port),
        env=variables,
        cwd=ROOT,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    try:
        until = monotonic() + STARTING
        while not answers(port, FRONTS[name].path):
            if process.poll() is not None or monotonic() > until:
                raise MissingError(f"{name} does not answer")
            sleep(0.2)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # itself, or workers that it has left
        process.wait()


def answers(port: int, path: str) -> bool:
    """Whether a call has a result."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", path, "0", {"content-type": "application/json"})
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def offered(name: str, port: int, load: float, seconds: float, seed: int) -> dict[str, float]:
    """What a client of its own process saw. Raises MissingError."""
    said = BUILD / "said-http.json"
    said.parent.mkdir(parents=True, exist_ok=True)
    said.unlink(missing_ok=True)
    asked = [str(port), FRONTS[name].path, str(load * IDEAL), str(seconds), str(seed), str(said)]
    words = [sys.executable, "-m", "benchmarks.batcher_http.client", *asked]
    limit = 20 * seconds + 60
    done = subprocess.run(words, capture_output=True, text=True, timeout=limit, cwd=ROOT)
    if done.returncode or not said.exists():
        raise MissingError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    answer: dict[str, float] = json.loads(said.read_text())
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", nargs="+", choices=FRONTS, default=[*FRONTS], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure falls short")
    given = parser.parse_args()
    results: Results = defaultdict(list)
    missing = dict[str, str]()
    for turn in range(given.rounds):
        for name in given.only:
            if name in missing:
                continue
            try:
                with serving(name) as port:
                    for load in LOADS:
                        found = offered(name, port, load, given.seconds, SEED + turn)
                        results[name, load].append(found)
                        print(f"round {turn + 1}: {name} at {load:.0%}", flush=True)
            except MissingError as error:
                missing[name] = str(error)
    Console(width=100).print(table(results, missing))
    return finish("batcher_http", __doc__ or "", SEED, figures(results))


def table(results: Results, missing: dict[str, str]) -> Table:
    """Medians of the rounds."""
    made = Table(title=f"5 ms + 0.2 ms an item over HTTP, {IDEAL:,.0f} items a second at best")
    for column in ("front", "load", "items/s", "p50 ms", "p95 ms", "p99 ms", "refused"):
        made.add_column(column, justify="left" if column == "front" else "right")
    for name in FRONTS:
        for load in LOADS:
            if runs := results.get((name, load)):
                of = {key: median([each[key] for each in runs]) for key in runs[0]}
                times = [f"{of[key]:.1f}" for key in ("p50", "p95", "p99")]
                made.add_row(
                    name, f"{load:.0%}", f"{of['rate']:,.0f}", *times, f"{of['refused']:.0%}"
                )
        if name in missing:
            made.add_row(name, f"missing: {missing[name]}")
    return made


def figures(results: Results) -> list[Figure]:
    """Round by round; without those that have no rounds."""
    low, high = LOADS

    def ratios(load: float, what: str, of: str, over: str) -> list[float]:
        pairs = zip(results[of, load], results[over, load], strict=False)
        return [one[what] / other[what] for one, other in pairs]

    made = [
        Figure("rate_vs_mosec", ratios(high, "rate", OURS, MOSEC), least=0.9),
        Figure("p95_vs_mosec", ratios(low, "p95", OURS, MOSEC), most=1.1),
        Figure("rate_with_ledger", ratios(high, "rate", KEPT, OURS)),
        Figure("p95_with_ledger", ratios(low, "p95", KEPT, OURS)),
    ]
    return [each for each in made if each.samples]


if __name__ == "__main__":
    sys.exit(main())
