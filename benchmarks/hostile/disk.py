"""The journal's disk is full. Do answers go on, and what does the log say?"""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.hostile.others import Others
from benchmarks.report import Figure
from benchmarks.server_overhead.served import serving

SIZE = "256k"
CALLS = 20


@contextmanager
def small(at: Path) -> Iterator[bool]:
    """A file system of its own, where that is permitted; False: it is not."""
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(at)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        said = str(error)
    if said:
        print(f"disk is left out: no small file system could be mounted: {said}")
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def fill(at: Path) -> None:
    try:
        with (at / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4_096))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def disk(folder: Path) -> list[Figure]:
    log, full = folder / "log", folder / "full"
    with small(full) as mounted:
        if not mounted:
            return []
        config = {"engine": {"journal": str(full / "journal.jsonl")}}
        with serving(config, folder, log=log) as served:
            others = Others(served)
            fill(full)
            for _ in range(CALLS):
                others.call()
                others.probe()
            said = log.read_text().splitlines()
    lines = sum("the journal" in line for line in said)
    return [
        Figure("disk_same", [sum(others.same) / len(others.same)], least=1.0),
        Figure("disk_health_ms", [max(others.health)], most=1_000.0, unit="ms"),
        Figure("disk_lines", [lines], most=1, least=1, unit="lines"),
    ]
