"""The server as a user has it: `headway serve` in a process of its own, its processor time read."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Served:
    """Who answers, and where."""

    pid: int  # of the front
    host: str
    port: int

    @property
    def front_cpu(self) -> float:
        """Seconds, in steps of a hundredth."""
        return cpu(self.pid)

    @property
    def engine_cpu(self) -> float:
        return sum(cpu(child) for child in children(self.pid))

    @property
    def front_memory(self) -> float:
        """Resident, in MB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * PAGE / 1e6

    def answer(self, bodies: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Of benchmarks.server_overhead.client, in a process of its own."""
        command = [sys.executable, "-m", "benchmarks.server_overhead.client"]
        done = subprocess.run(
            [*command, self.host, str(self.port)],
            input=json.dumps(list(bodies)),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        said: dict[str, float] = json.loads(done.stdout)
        return said


@contextmanager
def serving(config: Mapping[str, Any], folder: Path) -> Iterator[Served]:
    """`headway serve` with this file, on any free port; it is gone when the block is left."""
    file = folder / "headway.yaml"
    file.write_text(yaml.safe_dump(dict(config)))
    command = [sys.executable, "-m", "headway.cli", "serve", "--config", str(file), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        for line in process.stdout:
            if found := re.search(r"http://([\d.]+):(\d+)/v1", line):
                break
        else:
            raise SystemExit("the server did not begin")
        yield Served(process.pid, found[1], int(found[2]))
    finally:
        process.terminate()
        process.communicate()


def _stat(pid: int) -> list[str]:
    """What stands behind the name, which may have anything in it: proc(5), from `state` on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu(pid: int) -> float:
    stat = _stat(pid)
    return (int(stat[11]) + int(stat[12])) / TICK


def children(pid: int) -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                if int(_stat(int(each.name))[1]) == pid:
                    found.append(int(each.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
    return found
