"""away: the database does not answer for a minute."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from benchmarks.ledger.load import calls_in, config_of, under_load, unrecorded_in, wrong_in
from benchmarks.report import Figure
from benchmarks.server_overhead.served import serving

postgresql = import_module("tests.postgresql").postgresql


def away(seconds: float) -> list[Figure]:
    with TemporaryDirectory() as made, postgresql(below(made, "pg")) as url:
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
    cut: the worst case, because no error is reported."""
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


def below(made: str, name: str) -> Path:
    folder = Path(made) / name
    folder.mkdir()
    Path(made).chmod(0o755)
    return folder
