"""Does three times the capacity for a minute hurt, and do refused callers get in afterwards?

`headway serve` with the embedded model and its own defaults; prompts of 20 to 60 words, answers of
8 to 40 tokens, whole. Capacity is the answers per second that twice as many callers as there are
slots get, each asking again at once. It is measured before and after, because a machine's speed
changes.

Before anything is counted, the server goes through a flood like the one to come, because the first
one takes memory that later ones reuse. `front_mb` and `engine_mb` are resident memory at the end.

Then three times the capacity arrives for a minute, as a Poisson process, however many requests
still wait. A caller that is refused comes back once, after `retry-after-ms`. That is done ROUNDS
times, with a capacity measured in between. `answered_share` is the rate of answers with status 200
over the capacity before and after that minute, in windows of ten seconds. Late answers count too.
`goodput_share` is the same of the good ones alone: inside the limits that the server has for the
answer's lane, where the first token counts from when the request was due. It has no aim: a line
that may be 30 s long keeps no budget of 2 s to the first token. `answer_p50_ms`, counted likewise,
shows that. `refusals_with_retry_after` is the share, among all answers of the whole run that are
not a 200, of 429 and 503 with Retry-After. A 408 or a broken connection is among those without.
`first_retries_served` is about all retries that were due after the minute.

`memory_mb_per_min` is the least-squares slope of the memory that front and engine have resident
together, sampled twice a second. It runs from SETTLE seconds after the first refusal, when the line
has filled, to the minute's end, for each minute.

`late_ms` is how late the client sent its latest request, since it shares the machine. The client
runs in a process of its own, and `client_core` is the share of a core that it took. The whole takes
a quarter of an hour.

    python -m benchmarks.overload
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple

from benchmarks.report import Figure, finish, parser
from benchmarks.server_overhead.served import PAGE, Served, children, serving
from headway.figures.percentile import percentile
from headway.server.config.config import ServerConfig
from headway.server.config.sections.lanes import LaneSettings

SEED, OVER = 0, 3.0
FLOOD, CAPACITY, WINDOW = 40.0, 20.0, 10.0  # seconds
SETTLE, MINUTE = 5.0, 60.0  # seconds
ROUNDS = 3


class Answer(NamedTuple):
    due: float  # seconds of the monotonic clock, as all of them
    sent: float
    ended: float
    status: int  # 0: the connection broke
    told: float  # seconds that the caller should stay away; 0: not told
    attempt: int  # 0, or 1: it has come back
    lane: str = ""  # as all that follows: empty or 0 where there was no answer
    decode: float = 0.0  # seconds from its first token to its last, as the server has them
    tpot: float = 0.0  # seconds, likewise

    def is_good(self, lanes: Mapping[str, LaneSettings]) -> bool:
        """Whether it was answered inside every limit of its lane."""
        if self.status != 200:
            return False
        lane, e2e = lanes[self.lane], self.ended - self.due
        limits = (e2e - self.decode, lane.ttft), (self.tpot, lane.tpot), (e2e, lane.e2e)
        return all(1e9 * seconds <= most for seconds, most in limits)


@dataclass(frozen=True, slots=True)
class Asked:
    answers: list[Answer]
    cpu: float  # seconds, of the client

    def served(self, begin: float, end: float) -> int:
        return sum(each.status == 200 for each in self.ended(begin, end))

    def ended(self, begin: float, end: float) -> list[Answer]:
        return [each for each in self.answers if begin <= each.ended < end]


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
    """Samples twice a second: the time, and MB and processor seconds of front and engine."""

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


@dataclass(frozen=True, slots=True)
class Round:
    """A minute, and the capacity before and after it."""

    before: list[float]
    asked: Asked
    after: list[float]
    watch: Watch

    @property
    def begin(self) -> float:
        return min(each.due for each in self.asked.answers)

    @property
    def end(self) -> float:
        return self.begin + MINUTE

    @property
    def refused(self) -> list[Answer]:
        return [each for each in self.asked.answers if each.status != 200]

    def shares(self, counts: Callable[[Answer], bool]) -> list[float]:
        """The rate of the answers that count, over the capacity, window by window."""
        rate = median([*self.before, *self.after])
        windows = [self.begin + i * WINDOW for i in range(int(MINUTE / WINDOW))]
        ended = [self.asked.ended(at, at + WINDOW) for at in windows]
        return [sum(map(counts, each)) / WINDOW / rate for each in ended]

    def retries(self, *, later: bool) -> list[Answer]:
        """Retries that were due after the minute, or in it."""
        answers = self.asked.answers
        return [each for each in answers if each.attempt and (each.due > self.end) == later]

    def full(self) -> tuple[tuple[float, ...], ...]:
        """What was seen while the line was full: times, MB of both, processor seconds of both."""
        begin = min(each.ended for each in self.refused) + SETTLE
        return tuple(zip(*self.watch.within(begin, self.end), strict=True))


def figures(rounds: Sequence[Round]) -> list[Figure]:
    answers = [each for turn in rounds for each in turn.asked.answers]
    refused = [each for turn in rounds for each in turn.refused]
    told = [each for each in refused if each.status in (429, 503) and each.told]
    back = [each for turn in rounds for each in turn.retries(later=True)]
    early = [each for turn in rounds for each in turn.retries(later=False)]
    waits = [int(1e3 * (each.ended - each.due)) for each in answers if each.status == 200]
    watched = [turn.full() for turn in rounds]
    _, fronts, engines, *_ = watched[-1]
    capacities = [rounds[0].before, *(turn.after for turn in rounds)]
    clients = [turn.asked.cpu / (turn.asked.answers[-1].ended - turn.begin) for turn in rounds]
    slopes = [(slope(times, mine), slope(times, its)) for times, mine, its, *_ in watched]
    return [
        Figure("capacity_req_s", [each for some in capacities for each in some], unit="req/s"),
        *shares(rounds),
        Figure("memory_mb_per_min", [sum(both) for both in slopes], most=1.0, unit="MB/min"),
        Figure("front_mb_per_min", [front for front, _ in slopes], unit="MB/min"),
        Figure("engine_mb_per_min", [engine for _, engine in slopes], unit="MB/min"),
        Figure("front_mb", [fronts[-1]], unit="MB"),
        Figure("engine_mb", [engines[-1]], unit="MB"),
        Figure("refusals_with_retry_after", [len(told) / len(refused)], least=1.0),
        Figure("first_retries_served", [_served(back)], least=0.8, unit=f"of {len(back)}"),
        Figure("retries_served_meanwhile", [_served(early)], unit=f"of {len(early)}"),
        Figure("stay_away_s", [each.told for each in told], unit="s"),
        Figure("answer_p50_ms", [percentile(waits, 50) or 0.0], unit="ms"),
        Figure("answer_p95_ms", [percentile(waits, 95) or 0.0], unit="ms"),
        Figure(
            "front_core", [_core(times, spent) for times, *_, spent, _ in watched], unit="of a core"
        ),
        Figure(
            "engine_core", [_core(times, spent) for times, *_, spent in watched], unit="of a core"
        ),
        Figure("client_core", clients, unit="of a core"),
        Figure("late_ms", [1e3 * max(each.sent - each.due for each in answers)], unit="ms"),
    ]


def shares(rounds: Sequence[Round]) -> list[Figure]:
    """Rates over the capacity: of all answers, and of the good ones."""
    lanes = ServerConfig().lanes
    answered = [each for turn in rounds for each in turn.shares(lambda got: got.status == 200)]
    good = [each for turn in rounds for each in turn.shares(lambda got: got.is_good(lanes))]
    return [
        Figure("answered_share", answered, least=0.9, unit="of capacity"),
        Figure("goodput_share", good, unit="of capacity"),
    ]


def _core(times: Sequence[float], spent: Sequence[float]) -> float:
    return (spent[-1] - spent[0]) / (times[-1] - times[0])


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
    parser(__doc__).parse_args()
    callers = 2 * ServerConfig().engine.slots
    with TemporaryDirectory() as folder, serving({}, Path(folder)) as server:
        rough = ask(server, SEED, "closed", WINDOW, callers)
        ask(server, SEED, "flood", FLOOD, OVER * len(rough.answers) / WINDOW)
        rounds, before = list[Round](), capacity(server, SEED + 1, callers)
        for turn in range(ROUNDS):
            rate = OVER * median(before)
            print(f"capacity {median(before):.1f} req/s; offering {rate:.0f}", flush=True)
            with watching(server) as watch:
                asked = ask(server, SEED + 2 + 2 * turn, "open", MINUTE, rate)
            after = capacity(server, SEED + 3 + 2 * turn, callers)
            rounds.append(Round(before, asked, after, watch))
            _say(asked.answers, rounds[-1].end)
            before = after
    return finish("overload", __doc__ or "", SEED, figures(rounds))


if __name__ == "__main__":
    sys.exit(main())
