"""Does three times the capacity for a minute hurt, and do those who were refused get in afterwards?

`headway serve` with the embedded model and its own defaults; prompts of 20 to 60 words, answers of
8 to 40 tokens, whole. Capacity is what twice as many callers as there are slots are served of per
second, each asking again at once: measured before and after, because a machine's speed moves.

Before anything is counted the server has been through a flood like the one that comes: what the
first one takes of memory, it takes once. `front_mb` and `engine_mb` say how much is resident in
the end.

Then three times the capacity arrives for a minute, Poisson, whoever is still waiting. Who is
refused comes back once, after as long as `retry-after-ms` says. `goodput_share` is answers of 200
per second over the capacity, in windows of ten seconds of the minute. All of them count: at three
times its capacity a line that may be 30 s long keeps no budget of 2 s to the first token, and
`answer_p50_ms`, from when it was due, says so. `refusals_with_retry_after` counts every answer of
the whole run that is not a 200: a 429 or 503 with Retry-After is one of those, a 408 or a broken
connection is not. `first_retries_served` is of all retries that were due after the minute.

`memory_mb_per_min` is the least-squares slope of what front and engine have resident together,
twice a second, from SETTLE seconds after the first refusal, when the line has filled, to the
minute's end.

`late_ms` is how late the client sent its worst one: its arrivals are the machine's too. It runs in
a process of its own, and `client_core` is what it took of a core. Five minutes.

    python -m benchmarks.overload
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple

from benchmarks.report import Figure, finish
from benchmarks.server_overhead.served import PAGE, Served, children, serving
from headway.server.config import ServerConfig
from headway.tools.measure import percentile

SEED, OVER = 0, 3.0
FLOOD, CAPACITY, WINDOW = 40.0, 20.0, 10.0  # seconds
SETTLE, MINUTE = 5.0, 60.0  # seconds


class Answer(NamedTuple):
    due: float  # seconds of the monotonic clock, as all of them
    sent: float
    ended: float
    status: int  # 0: the connection broke
    told: float  # seconds to stay away; 0: nothing was said
    attempt: int  # 0, or 1: it has come back


@dataclass(frozen=True, slots=True)
class Asked:
    answers: list[Answer]
    cpu: float  # seconds, of the client

    def served(self, begin: float, end: float) -> int:
        return sum(each.status == 200 and begin <= each.ended < end for each in self.answers)


def ask(server: Served, seed: int, how: str, seconds: float, many: float) -> Asked:
    command = [sys.executable, "-m", "benchmarks.overload.client", str(server.port), str(seed)]
    done = subprocess.run(
        [*command, how, str(seconds), str(many)], stdout=subprocess.PIPE, text=True, check=True
    )
    said = json.loads(done.stdout)
    return Asked([Answer(*each) for each in said["answers"]], said["cpu"])


def capacity(server: Served, seed: int, callers: int) -> list[float]:
    """Answers per second, window by window."""
    asked = ask(server, seed, "closed", CAPACITY + WINDOW / 2, callers)
    begin = asked.answers[0].sent + WINDOW / 4
    windows = [begin + i * WINDOW for i in range(int(CAPACITY / WINDOW))]
    return [asked.served(at, at + WINDOW) / WINDOW for at in windows]


@dataclass(slots=True)
class Watch:
    """Twice a second: when, and MB and processor seconds of front and engine."""

    server: Served
    seen: list[tuple[float, float, float, float, float]] = field(default_factory=list)

    def look(self) -> None:
        engine = sum(_resident(pid) for pid in children(self.server.pid))
        front, spent = _resident(self.server.pid), (self.server.front_cpu, self.server.engine_cpu)
        self.seen.append((monotonic(), front, engine, *spent))

    def within(self, begin: float, end: float) -> list[tuple[float, float, float, float, float]]:
        return [each for each in self.seen if begin <= each[0] <= end]


@contextmanager
def watching(server: Served) -> Iterator[Watch]:
    watch, over = Watch(server), threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            watch.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Per minute."""
    return 60 * linear_regression(times, values).slope


def figures(before: list[float], asked: Asked, after: list[float], watch: Watch) -> list[Figure]:
    capacities = [*before, *after]
    rate, answers = median(capacities), asked.answers
    begin = min(each.due for each in answers)
    end = begin + MINUTE
    windows = [begin + i * WINDOW for i in range(int(MINUTE / WINDOW))]
    shares = [asked.served(at, at + WINDOW) / WINDOW / rate for at in windows]
    refused = [each for each in answers if each.status != 200]
    told = [each for each in refused if each.status in (429, 503) and each.told]
    back = [each for each in answers if each.attempt and each.due > end]
    early = [each for each in answers if each.attempt and each.due <= end]
    waits = [int(1e3 * (each.ended - each.due)) for each in answers if each.status == 200]
    full = min(each.ended for each in refused) + SETTLE
    times, front, engine, front_cpu, engine_cpu = zip(*watch.within(full, end), strict=True)
    both = [a + b for a, b in zip(front, engine, strict=True)]
    long = times[-1] - times[0]
    _say(answers, end)
    return [
        Figure("capacity_req_s", capacities, unit="req/s"),
        Figure("goodput_share", shares, least=0.9, unit="of capacity"),
        Figure("memory_mb_per_min", [slope(times, both)], most=1.0, unit="MB/min"),
        Figure("front_mb_per_min", [slope(times, front)], unit="MB/min"),
        Figure("engine_mb_per_min", [slope(times, engine)], unit="MB/min"),
        Figure("front_mb", [front[-1]], unit="MB"),
        Figure("engine_mb", [engine[-1]], unit="MB"),
        Figure("refusals_with_retry_after", [len(told) / len(refused)], least=1.0),
        Figure("first_retries_served", [_served(back)], least=0.8, unit=f"of {len(back)}"),
        Figure("retries_served_meanwhile", [_served(early)], unit=f"of {len(early)}"),
        Figure("stay_away_s", [each.told for each in told], unit="s"),
        Figure("answer_p50_ms", [percentile(waits, 50) or 0.0], unit="ms"),
        Figure("answer_p95_ms", [percentile(waits, 95) or 0.0], unit="ms"),
        Figure("front_core", [(front_cpu[-1] - front_cpu[0]) / long], unit="of a core"),
        Figure("engine_core", [(engine_cpu[-1] - engine_cpu[0]) / long], unit="of a core"),
        Figure("client_core", [asked.cpu / (answers[-1].ended - answers[0].due)], unit="of a core"),
        Figure("late_ms", [1e3 * max(each.sent - each.due for each in answers)], unit="ms"),
    ]


def _served(retries: list[Answer]) -> float:
    return sum(each.status == 200 for each in retries) / max(1, len(retries))


def _say(answers: Sequence[Answer], end: float) -> None:
    for when, some in (
        ("in the overload", [each for each in answers if each.due <= end]),
        ("after it", [each for each in answers if each.due > end]),
    ):
        for attempt, who in enumerate(("first", "retries")):
            counts = Counter(each.status for each in some if each.attempt == attempt)
            said = ", ".join(f"{count} of {status}" for status, count in sorted(counts.items()))
            print(f"{when}, {who}: {said or 'none'}")


def main() -> int:
    callers = 2 * ServerConfig().engine.slots
    with TemporaryDirectory() as folder, serving({}, Path(folder)) as server:
        rough = ask(server, SEED, "closed", WINDOW, callers)
        ask(server, SEED, "flood", FLOOD, OVER * len(rough.answers) / WINDOW)
        before = capacity(server, SEED + 1, callers)
        rate = OVER * median(before)
        print(f"capacity {median(before):.1f} req/s; offering {rate:.0f}", flush=True)
        with watching(server) as watch:
            asked = ask(server, SEED + 2, "open", MINUTE, rate)
        after = capacity(server, SEED + 3, callers)
    return finish("overload", __doc__ or "", SEED, figures(before, asked, after, watch))


if __name__ == "__main__":
    sys.exit(main())
