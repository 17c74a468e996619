"""How many calls of a batched function does our front answer over HTTP, beside those of others?

The function takes 5 ms and 0.2 ms an item, at most 32 at once, so 2,807 items a second at best. A
client in its own process offers items at 80 % and at 150 % of that rate, one for each request, by
the same Poisson arrivals, and times each from its scheduled arrival. `headway serve`, litserve and
Ray Serve have a front in Python, mosec has one in Rust. Each of the three others has a row for each
of its batching windows: 1 ms, 5 ms and its default, which is 10 ms for mosec and Ray Serve and none
for litserve. `headway-ledger` is ours with a row of the ledger for each item, in SQLite. Server and
client share the machine's cores. The servers run one after the other, in turn. A server that cannot
be installed has a row that says so.

The aims are 0.9 of mosec's rate at 150 % and 1.1 of its p95 at 80 %, each against mosec's best row
for that figure. Neither a refused item is in a p95, nor one that the client could not send because
all its connections were taken: `refused_at_80` and `not_sent_at_80`, the shares of the worst round,
have aims of their own. What the ledger costs is printed, and has no aim. The exit status is 1 if
headway is missing.

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
from time import monotonic, sleep

from rich.console import Console
from rich.table import Table

from benchmarks.batcher.contender import IDEAL, LOADS
from benchmarks.batcher.settings import HIGH, LOW, Results, Setting, best, left_out, medians, ratios
from benchmarks.peers.environments import Kit, MissingError, environment
from benchmarks.report import Figure, finish

ROOT = Path(__file__).parents[2]
BUILD = ROOT / ".build" / "batcher"
OURS, KEPT, MOSEC = "headway", "headway-ledger", "mosec"
STARTING = 120.0  # seconds
SEED = 1


@dataclass(frozen=True, slots=True)
class Front:
    """A server of the function."""

    path: str  # of a call
    package: str  # as pip knows it
    script: str = ""  # in its own environment; empty: it is ours
    address: Sequence[str] = ()  # the script's words before the port
    waits: Sequence[float] = (0.0,)  # milliseconds


FRONTS = {
    OURS: Front("/v1/functions/work", "headway"),
    KEPT: Front("/v1/functions/work", "headway"),
    MOSEC: Front(
        *("/inference", "mosec", "served_by_mosec.py"),
        ("--address", "127.0.0.1", "--port"),
        (1, 5, 10),
    ),
    "litserve": Front("/predict", "litserve", "served_by_litserve.py", waits=(0, 1, 5)),
    "ray-serve": Front("/work", "ray[serve]", "served_by_ray.py", waits=(1, 5, 10)),
}


def settings(names: Sequence[str]) -> list[Setting]:
    return [Setting(name, wait) for name in names for wait in FRONTS[name].waits]


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
        return [sys.executable, "-m", "headway", "serve", target, "--port", str(port), *kept]
    python = environment(BUILD, name, Kit([[front.package]]))
    return [str(python), str(Path(__file__).with_name(front.script)), *front.address, str(port)]


def new_ledger() -> Path:
    """A path where there is no ledger yet."""
    path = BUILD / "ledger-http.db"
    for each in BUILD.glob(f"{path.name}*"):  # with SQLite's own files
        each.unlink()
    return path


@contextmanager
def serving(setting: Setting) -> Iterator[int]:
    """A server that answers; gives its port. Raises MissingError."""
    port, name = free_port(), setting.library
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    variables |= {"RAY_USAGE_STATS_ENABLED": "0", "WAIT_MS": f"{setting.wait:g}"}
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
                raise MissingError("it does not answer")
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
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, cwd=ROOT)
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"the client did not end within {limit:g} s") from error
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
    chosen = settings(given.only)
    results, missing = measured(chosen, given.rounds, given.seconds)
    Console(width=100).print(table(chosen, results, missing))
    return finish("batcher_http", __doc__ or "", SEED, figures(chosen, results, missing))


def measured(
    chosen: Sequence[Setting], rounds: int, seconds: float
) -> tuple[Results, dict[Setting, str]]:
    """The rounds of each setting and load, and why the missing settings are missing."""
    results = defaultdict[tuple[Setting, float], list[dict[str, float]]](list)
    missing = dict[Setting, str]()
    for turn in range(rounds):
        for setting in chosen:
            if setting in missing:
                continue
            try:
                with serving(setting) as port:
                    for load in LOADS:
                        found = offered(setting.library, port, load, seconds, SEED + turn)
                        results[setting, load].append(found)
                        print(f"round {turn + 1}: {setting} at {load:.0%}", flush=True)
            except MissingError as error:
                missing[setting] = str(error)
    return results, missing


def table(chosen: Sequence[Setting], results: Results, missing: dict[Setting, str]) -> Table:
    """Medians of the rounds."""
    made = Table(title=f"5 ms + 0.2 ms an item over HTTP, {IDEAL:,.0f} items a second at best")
    columns = ("load", "items/s", "p50 ms", "p95 ms", "p99 ms", "refused", "not sent")
    for column in ("front", *columns):
        made.add_column(column, justify="left" if column == "front" else "right")
    for setting in chosen:
        for load in LOADS:
            if runs := results.get((setting, load)):
                of = medians(runs)
                times = [f"{of[key]:.1f}" for key in ("p50", "p95", "p99")]
                shares = [f"{of[key]:.1%}" for key in ("refused", "not_sent")]
                made.add_row(str(setting), f"{load:.0%}", f"{of['rate']:,.0f}", *times, *shares)
        if setting in missing:
            made.add_row(str(setting), f"missing: {missing[setting]}")
    return made


def figures(
    chosen: Sequence[Setting], results: Results, missing: dict[Setting, str]
) -> list[Figure]:
    """Servers that are missing, if only in a later round, are left out of the comparison. Ends the
    process if headway is missing."""
    ours, kept = settings([OURS, KEPT])
    if ours in missing:
        raise SystemExit(f"headway is missing: {missing[ours]}")
    there, made = [each for each in chosen if each not in missing], list[Figure]()
    if ours not in there:
        return made
    for load, what, least, most in ((HIGH, "rate", 0.9, None), (LOW, "p95", None, 1.1)):
        rows = [each for each in there if each.library == MOSEC]
        if other := best(results, rows, load, what):
            print(f"the best {what} of mosec: {other}")
            samples = ratios(results, ours, other, load, what)
            made.append(Figure(f"{what}_vs_mosec", samples, most, least=least))
        elif MOSEC in {each.library for each in chosen}:
            print(f"{what}_vs_mosec is not judged: mosec is missing")
    made += [left_out(results[ours, LOW], what) for what in ("refused", "not_sent")]
    if kept in there:
        for load, what in ((HIGH, "rate"), (LOW, "p95")):
            samples = ratios(results, kept, ours, load, what)
            made.append(Figure(f"{what}_with_ledger", samples))
    return made


if __name__ == "__main__":
    sys.exit(main())
