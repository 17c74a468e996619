"""The server as a user has it: `headway serve` in a process of its own, with its processor time."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
HEADWAY = (sys.executable, "-m", "headway")


@dataclass(frozen=True, slots=True)
class Served:
    """The server: its process and its address."""

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
        """Answers, by benchmarks.server_overhead.client in a process of its own."""
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
def serving(
    config: Mapping[str, Any],
    folder: Path,
    descriptors: int = 0,
    log: Path | None = None,
    command: Sequence[str] = HEADWAY,
) -> Iterator[Served]:
    """`headway serve` with this file, on any free port; it is gone when the block is left.

    descriptors: that it may have; 0: as many as this process. log: where its output goes, once it
    is ready; without one it is read and dropped, because lines that nobody reads stay in the
    server's memory. command: what runs `headway`.
    """
    file = folder / "headway.yaml"
    file.write_text(yaml.safe_dump(dict(config)))
    command = [*command, "serve", "--config", str(file), "--port", "0"]
    if descriptors:
        command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"', *command]
    errors = subprocess.STDOUT if log else None
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    reading: threading.Thread | None = None
    try:
        assert process.stdout
        for line in process.stdout:
            if found := re.search(r"http://([\d.]+):(\d+)/v1", line):
                break
        else:
            raise SystemExit("the server did not begin")
        reading = threading.Thread(target=_keep, args=(process.stdout, log or Path(os.devnull)))
        reading.start()
        yield Served(process.pid, found[1], int(found[2]))
    finally:
        process.terminate()
        if reading:
            reading.join()
        process.communicate()


def _keep(said: IO[str], log: Path) -> None:
    with log.open("w", buffering=1) as file:
        file.writelines(said)


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
