"""Describe the machine behind a figure (without its host name), and its busy neighbours."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

NOISY_CORES = 0.3  # cores busy with other processes, above which a measurement is not trusted
WORTH_MEASURING = 2.0  # core-seconds: the system counts in hundredths of a second


def describe_machine() -> dict[str, str | int]:
    """This machine's processor, cores, system, and Python and torch versions, for reports."""
    return {
        "processor": processor(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": _version("torch"),
    }


def cores() -> int:
    """The number of cores that this process may use."""
    return len(_cores())


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model name, or its architecture if the system gives no name."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


class Neighbours:
    """How many of this process's cores other processes use, measured from its creation on.

    Descendants of this process, such as vLLM's workers, do not count as other processes.
    """

    def __init__(self, stat: Path = Path("/proc/stat"), proc: Path = Path("/proc")) -> None:
        self.stat, self.proc = stat, proc
        self._work, self._whole = self._read()

    def cores(self) -> float:
        """Mean number of cores that other processes used since creation; 0 if unknown."""
        work, whole = self._read()
        if whole - self._whole < WORTH_MEASURING:
            return 0.0
        return max(0.0, cores() * (work - self._work) / (whole - self._whole))

    def _read(self) -> tuple[float, float]:
        """Core-seconds since the machine started: used by other processes, and the total."""
        try:
            lines = [line.split() for line in self.stat.read_text().splitlines()]
        except OSError:
            return 0.0, 0.0
        mine = {f"cpu{core}" for core in _cores()}
        # cpu0 user nice system idle iowait irq softirq steal
        counts = [[int(each) for each in line[1:9]] for line in lines if line and line[0] in mine]
        whole = sum(sum(count) for count in counts) / os.sysconf("SC_CLK_TCK")
        rest = sum(count[3] + count[4] for count in counts) / os.sysconf("SC_CLK_TCK")
        return whole - rest - own_seconds(self.proc), whole


def own_seconds(proc: Path = Path("/proc")) -> float:
    """Core-seconds of this process and its descendants, including waited-for ended children."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    parents, seconds = dict[int, int](), dict[int, float]()
    for path in proc.glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        seconds[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    for pid in parents:
        above = parents[pid]
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid():
            own += seconds[pid]
    return own


def _cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
