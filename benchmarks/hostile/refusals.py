"""One key is refused again and again. Does another key then wait for longer than the line does?"""

import json
import threading
from hashlib import sha256
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep

from benchmarks.hostile.others import PATIENCE, PAUSE
from benchmarks.report import Figure
from benchmarks.server_overhead.served import Served, serving

WAITING, REFUSALS = 16, 300
FLOODERS = 4  # beside the callers that fill the line
SECONDS = 60.0  # at most, for anything here
TRIES = 20  # of a caller that is to be refused but finds a place
KEYS = ("flood", "other")
ASKED = {"prompt": "The json module", "max_tokens": 1_000, "ignore_eos": True}
SHORT = ASKED | {"max_tokens": 1}
RATIO = 2.0  # jitter adds up to a factor of 1.5, and the line drains meanwhile


def config() -> dict[str, object]:
    keys = [{"name": each, "sha256": sha256(each.encode()).hexdigest()} for each in KEYS]
    lanes = {"only": {"max_waiting": WAITING}}
    return {"keys": keys, "lanes": lanes, "engine": {"slots": 1}}


def ask(served: Served, key: str, method: str, path: str, body: object = None) -> tuple[int, str]:
    """The status, and Retry-After; or, where there is none, the body."""
    line = HTTPConnection(served.host, served.port, timeout=PATIENCE)
    try:
        about = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        line.request(method, path, json.dumps(body) if body else None, about)
        answer = line.getresponse()
        return answer.status, answer.headers.get("Retry-After") or answer.read().decode()
    except (OSError, HTTPException):
        return 0, ""
    finally:
        line.close()


class Flood:
    """Callers of one key. They ask again at once until enough were refused, and then at leisure."""

    def __init__(self, served: Served) -> None:
        self.served, self.refused = served, 0
        self._over, self._ends = threading.Event(), monotonic() + 2 * SECONDS

    def add(self, count: int) -> None:
        for _ in range(count):
            threading.Thread(target=self._again, daemon=True).start()

    def _again(self) -> None:
        while not self._over.is_set() and monotonic() < self._ends:
            if ask(self.served, KEYS[0], "POST", "/v1/completions", ASKED)[0] == 429:
                self.refused += 1
                if self.refused > 2 * REFUSALS:
                    self._over.wait(PAUSE)

    def close(self) -> None:
        self._over.set()


def drained_in(served: Served) -> float:
    """Seconds in which the line drains, as the server says, as soon as it is full."""
    ends = monotonic() + SECONDS
    while monotonic() < ends:
        (lane,) = json.loads(ask(served, KEYS[0], "GET", "/v1/lanes")[1])["data"]
        if lane["waiting"] >= WAITING and lane["drain_tokens_per_second"]:
            return float(lane["waiting_tokens"] / lane["drain_tokens_per_second"])
        sleep(PAUSE / 10)
    raise SystemExit("the line was never full")


def told(served: Served) -> tuple[float, float]:
    """Seconds that a caller who finds the line full is told to wait, and until the line drains."""
    for _ in range(TRIES):
        line = drained_in(served)
        status, said = ask(served, KEYS[1], "POST", "/v1/completions", SHORT)
        if status == 429:
            return float(said), line
    raise SystemExit("the line was never full when it was asked")


def refusals(folder: Path) -> list[Figure]:
    with serving(config(), folder, log=folder / "log") as served:
        flood = Flood(served)
        flood.add(WAITING + 1)
        drained_in(served)
        first, began = flood.refused, monotonic()
        flood.add(FLOODERS)
        while flood.refused < first + REFUSALS and monotonic() - began < SECONDS:
            sleep(PAUSE / 10)
        counted, took = flood.refused - first, monotonic() - began
        after, line = told(served)
        flood.close()
    return [
        Figure("refusals_counted", [counted], least=REFUSALS),
        Figure("refusals_took_s", [took], unit="s"),
        Figure("refusals_told_s", [after], unit="s"),
        Figure("refusals_line_s", [line], unit="s"),
        Figure("refusals_ratio", [after / max(1.0, line)], most=RATIO),
    ]
