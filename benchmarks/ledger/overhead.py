"""overhead: a server with a ledger and an open page against one without, in turns."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import comb
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from benchmarks.ledger.load import config_of, under_load
from benchmarks.report import Figure
from benchmarks.server_overhead.served import Served, children, serving

LOOK = 3.0  # seconds between two fetches of the live page, as its script has it
SETTLE = 1.0  # seconds of load before a turn is measured
SURE = 0.95  # of the interval


@dataclass(frozen=True, slots=True)
class Turn:
    """What one server did in one turn."""

    tokens: float  # generated, by its own count
    seconds: float
    front: float  # seconds of processor time
    engine: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds of processor time per token, of both processes."""
        return (self.front + self.engine) / self.tokens * 1e6


@dataclass(frozen=True, slots=True)
class Side:
    """A server that is suspended while it is not its turn."""

    served: Served
    client: httpx2.Client
    looks: bool  # its page is open
    pids: Sequence[int]

    def suspend(self, stopped: bool) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP if stopped else signal.SIGCONT)

    def turn(self, seconds: float) -> Turn:
        """The same requests each time."""
        self.suspend(False)
        with ExitStack() as stack:
            if self.looks:
                stack.enter_context(page_open(self.client.base_url))
            stack.enter_context(under_load(self.served))
            time.sleep(SETTLE)
            before = self._look()
            time.sleep(seconds)
            after = self._look()
        time.sleep(0.2)  # the last rows of this turn are written in it
        self.suspend(True)
        return Turn(*[b - a for a, b in zip(before, after, strict=True)])

    def _look(self) -> tuple[float, float, float, float]:
        tokens = generated(self.client)
        front, *engine = map(cpu, self.pids)
        return tokens, time.monotonic(), front, sum(engine)


def overhead(pairs: int, seconds: float) -> list[Figure]:
    """Both servers stand from beginning to end, and take turns in alternating order. So a turn can
    be short, and the two of a pair meet the machine in the same state."""
    turns: dict[bool, list[Turn]] = {True: [], False: []}
    with TemporaryDirectory() as made, ExitStack() as stack:
        kept = config_of(str(Path(made) / "ledger.db"))
        without = {name: each for name, each in kept.items() if name != "ledger"}
        sides = {
            each: stack.enter_context(side(config, Path(made) / str(each), looks=each))
            for each, config in ((True, kept), (False, without))
        }
        for pair in range(pairs):
            for each in (True, False) if pair % 2 else (False, True):
                turns[each].append(sides[each].turn(seconds))
            mine, other = turns[True][-1], turns[False][-1]
            said = (
                f"tokens/s {1 - mine.rate / other.rate:+.2%}, CPU {mine.cost / other.cost - 1:+.2%}"
            )
            print(f"pair {pair + 1} of {pairs}: {said}", file=sys.stderr)
    return figures_of(turns[True], turns[False])


def figures_of(kept: Sequence[Turn], without: Sequence[Turn]) -> list[Figure]:
    """The figures of pairs of turns, in their order."""
    both = list(zip(kept, without, strict=True))
    rates, costs = [1 - a.rate / b.rate for a, b in both], [a.cost / b.cost - 1 for a, b in both]
    return [
        Figure("ledger_overhead", rates, most=0.01),
        *_interval("ledger_overhead", rates),
        Figure("ledger_cpu_overhead", costs, most=0.01),
        *_interval("ledger_cpu_overhead", costs),
        Figure("tokens_per_second_without", [each.rate for each in without]),
        *[
            Figure(
                f"{part}_{name}", [getattr(t, part) / t.tokens * 1e6 for t in side], unit="us/token"
            )
            for part in ("front", "engine")
            for name, side in (("with", kept), ("without", without))
        ],
    ]


def _interval(name: str, values: Sequence[float]) -> list[Figure]:
    low, high = median_interval(values)
    return [Figure(f"{name}_low", [low]), Figure(f"{name}_high", [high])]


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the median lies, with probability SURE: between two of the ordered values, by the
    binomial distribution of how many are below it. Nothing is assumed about the distribution of the
    values; with too few values the interval is their whole range."""
    ordered, count, beyond, cut = sorted(values), len(values), 0.0, 0
    for k in range(count // 2):
        beyond += comb(count, k) / 2**count
        if beyond > (1 - SURE) / 2:
            break
        cut = k
    return ordered[cut], ordered[-1 - cut]


@contextmanager
def side(config: dict[str, object], folder: Path, looks: bool) -> Iterator[Side]:
    """A server that is up, and suspended."""
    folder.mkdir()
    with serving(config, folder, log=folder / "log") as served:
        made = Side(
            served,
            httpx2.Client(base_url=f"http://{served.host}:{served.port}", timeout=60),
            looks,
            [served.pid, *children(served.pid)],
        )
        made.suspend(True)
        try:
            yield made
        finally:
            made.suspend(False)
            made.client.close()


@contextmanager
def page_open(url: httpx2.URL) -> Iterator[None]:
    """While the block runs, the live page is open and fetched as its script does."""
    over = threading.Event()

    def look() -> None:
        with httpx2.Client(base_url=url, timeout=60) as client:
            client.get("/dashboard").raise_for_status()
            while not over.wait(LOOK):
                client.get("/dashboard/live").raise_for_status()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def cpu(pid: int) -> float:
    """Seconds of processor time of a process, all of its threads, to the nanosecond."""
    return time.clock_gettime(
        (~pid << 3) | 2
    )  # the kernel's CPUCLOCK_SCHED; clock_getcpuclockid(3)


def generated(client: httpx2.Client) -> float:
    """Tokens, by the server's own count."""
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("vllm:generation_tokens_total"):
            return float(line.rpartition(" ")[2])
    raise SystemExit("the server does not count its tokens")
