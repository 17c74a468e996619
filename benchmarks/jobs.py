"""What becomes of jobs when the server is killed thirty times, and what do they cost the others?

Killed: a batch of 10,000 short completions and a stream of later calls run while the server is
ended by SIGKILL and started again, thirty times. Then every acknowledged request must have exactly
one result. The memory of the last server is measured while it runs another such batch.

Beside: callers of the interactive lane send requests at Poisson arrivals, first alone and then
while a batch keeps the engine full, in turns. No request may fail, and first tokens may come later
by one full step, or by 5 %. The effect of a full batch on next tokens is printed without an aim,
because steps are shared.

    python -m benchmarks.jobs [--part killed|beside] [--kills 30] [--items 10000] [--check]
"""

import json
import os
import random
import re
import signal
import sys
import threading
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import nan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import httpx2

from benchmarks.lanes.cost import learned
from benchmarks.report import Figure, finish
from benchmarks.server_overhead.served import Served, serving

SEED = 1
PATH = "/v1/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}
UPTIME = 1.0, 3.0  # seconds that a server serves before it is killed
MOST = 900.0  # seconds for a batch to end
RATE, TURN, TURNS = 4.0, 25.0, 4  # interactive requests a second; seconds of a turn; turns of each
TOKENS = 16
FLAT = 16.0  # MB that the memory may grow
LATER = {"prefer": "respond-async"}


def body(number: int, tokens: int) -> dict[str, Any]:
    return {"prompt": f"def f{number}(", "max_tokens": tokens, "temperature": 0}


def input_file(count: int, tokens: int) -> bytes:
    about = {"method": "POST", "url": PATH}
    lines = [{"custom_id": f"c{i}", **about, "body": body(i, tokens)} for i in range(count)]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def begin(client: httpx2.Client, content: bytes) -> str:
    """The id of a batch of these lines."""
    files = {"file": ("in.jsonl", content)}
    file = client.post("/v1/files", data={"purpose": "batch"}, files=files).raise_for_status()
    asked = {"input_file_id": file.json()["id"], "endpoint": PATH, "completion_window": "24h"}
    id: str = client.post("/v1/batches", json=asked).raise_for_status().json()["id"]
    return id


def client_of(served: Served) -> httpx2.Client:
    return httpx2.Client(base_url=f"http://{served.host}:{served.port}", timeout=60)


class Calls(threading.Thread):
    """Sends later calls, and keeps the ids of those that were acknowledged."""

    def __init__(self, served: Served) -> None:
        super().__init__(daemon=True)
        self._served, self.ids = served, list[str]()
        self.start()

    def run(self) -> None:
        with client_of(self._served) as client:
            for number in range(10**6):
                try:
                    answer = client.post(PATH, json=body(number, 2), headers=LATER)
                except httpx2.HTTPError:
                    return  # it was killed
                if answer.status_code == 202:
                    self.ids.append(answer.json()["id"])
                sleep(0.05)


def killed(folder: Path, kills: int, items: int) -> list[Figure]:
    config = {"jobs": {"store": str(folder / "jobs.db")}, "logs": {"access": False}}
    draw, acknowledged, batch = random.Random(SEED), list[str](), ""
    for number in range(kills):
        with serving(config, folder, log=folder / "log") as served:
            with client_of(served) as client:
                batch = batch or begin(client, input_file(items, 8))
            calls = Calls(served)
            sleep(draw.uniform(*UPTIME))
            os.kill(served.pid, signal.SIGKILL)
            calls.join()
            acknowledged += calls.ids
        print(f"killed {number + 1} of {kills}, {len(acknowledged)} calls so far", file=sys.stderr)
    with serving(config, folder, log=folder / "log") as served, client_of(served) as client:
        done, _ = wait(client, batch, served)
        files = [done[name] for name in ("output_file_id", "error_file_id") if done[name]]
        lines = [line for id in files for line in content(client, id)]
        states = Counter(client.get(f"/v1/jobs/{id}").json()["status"] for id in acknowledged)
        _, memory = wait(client, begin(client, input_file(items, 2)), served)
    found = Counter(json.loads(line)["custom_id"] for line in lines)
    print(f"batch: {done['request_counts']}; calls: {dict(states)}", file=sys.stderr)
    lost = sum(f"c{i}" not in found for i in range(items))
    early = median(memory[len(memory) // 10 : len(memory) // 5 + 1])
    late = median(memory[-max(1, len(memory) // 10) :])
    return [
        Figure("items_lost", [lost], most=0),
        Figure("items_twice", [sum(found.values()) - len(found)], most=0),
        Figure("items_failed", [done["request_counts"]["failed"]], most=0),
        Figure("calls_acknowledged", [len(acknowledged)]),
        Figure("calls_not_completed", [len(acknowledged) - states["completed"]], most=0),
        Figure("memory_growth", [late - early], most=FLAT, unit="MB"),
        Figure("memory", [late], unit="MB"),
    ]


def content(client: httpx2.Client, id: str) -> list[str]:
    return client.get(f"/v1/files/{id}/content").raise_for_status().text.splitlines()


def wait(client: httpx2.Client, batch: str, served: Served) -> tuple[dict[str, Any], list[float]]:
    """The batch once it has ended, and the front's memory until then."""
    memory, end = [served.front_memory], monotonic() + MOST
    while True:
        job: dict[str, Any] = client.get(f"/v1/batches/{batch}").raise_for_status().json()
        memory.append(served.front_memory)
        if job["status"] in ENDED:
            return job, memory
        if monotonic() > end:
            raise SystemExit(f"the batch has not ended: {job['request_counts']}")
        sleep(0.5)


class Interactive:
    """Callers of the interactive lane, each from its scheduled arrival."""

    def __init__(self, client: httpx2.Client, seconds: float, seed: int) -> None:
        self.client, self.firsts, self.nexts = client, list[float](), list[float]()
        draw, at, threads = random.Random(seed), 0.0, list[threading.Thread]()
        began = monotonic()
        while (at := at + draw.expovariate(RATE)) < seconds:
            threads.append(threading.Thread(target=self._call, args=(began + at, len(threads))))
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.failed = len(threads) - len(self.firsts)  # refused, cut off, or without a second token

    def _call(self, at: float, number: int) -> None:
        asked = body(number, TOKENS) | {"stream": True, "ignore_eos": True}
        lane, times = {"x-headway-lane": "interactive"}, list[float]()
        sleep(max(0.0, at - monotonic()))
        try:
            with self.client.stream("POST", PATH, json=asked, headers=lane) as answer:
                for line in answer.raise_for_status().iter_lines():
                    if line.startswith('data: {"error"'):
                        return
                    if line.startswith("data: {"):
                        times.append(monotonic())
        except httpx2.HTTPError:
            return
        if len(times) < 2:
            return
        self.firsts.append(times[0] - at)
        self.nexts.append((times[-1] - times[0]) / (len(times) - 1))


def p95(values: Sequence[float]) -> float:
    """Milliseconds; NaN: there are none."""
    return sorted(values)[int(len(values) * 0.95)] * 1_000 if values else nan


@contextmanager
def batch_beside(served: Served, wanted: bool) -> Iterator[None]:
    """While the block runs, a batch keeps the engine full."""
    if not wanted:
        yield
        return
    with client_of(served) as client:
        id = begin(client, input_file(10_000, 64))
        until_full(client)
        yield
        client.post(f"/v1/batches/{id}/cancel").raise_for_status()
        wait(client, id, served)


def until_full(client: httpx2.Client) -> None:
    end = monotonic() + 60
    while client.get("/v1/lanes").json()["running"] < 12:
        if monotonic() > end:
            raise SystemExit("the batch does not fill the engine")
        sleep(0.1)


def steps_so_far(client: httpx2.Client) -> tuple[float, float]:
    """Milliseconds of all steps so far, and their number, from /metrics."""
    took = count = 0.0
    for line in client.get("/metrics").text.splitlines():
        value = line.rpartition(" ")[2]
        if re.match(r'headway_step_seconds_total\{.*kind="(compute|host)"', line):
            took += float(value) * 1_000
        elif line.startswith("headway_steps_total"):
            count += float(value)
    return took, count


def beside(folder: Path) -> list[Figure]:
    config = {
        "jobs": {"store": str(folder / "jobs.db")},
        "logs": {"access": False},
        "engine": {"cost": str(learned(folder)), "slots": 16},
    }
    firsts: dict[bool, list[float]] = {False: [], True: []}
    nexts: dict[bool, list[float]] = {False: [], True: []}
    excess, steps, failed = list[float](), list[float](), 0
    with serving(config, folder, log=folder / "log") as served, client_of(served) as client:
        for turn in range(TURNS):
            for is_busy in (False, True):
                with batch_beside(served, is_busy):
                    before = steps_so_far(client)
                    run = Interactive(client, TURN, SEED + turn)
                    after = steps_so_far(client)
                failed += run.failed
                firsts[is_busy].append(p95(run.firsts))
                nexts[is_busy].append(p95(run.nexts))
                if is_busy:
                    steps.append((after[0] - before[0]) / max(1, after[1] - before[1]))
            excess.append(firsts[True][-1] - firsts[False][-1])
    allowed = max(0.05 * median(firsts[False]), median(steps))
    return [
        Figure("interactive_failed", [failed], most=0),
        Figure("first_p95_alone", firsts[False], unit="ms"),
        Figure("first_p95_beside", firsts[True], unit="ms"),
        Figure("first_p95_excess", excess, most=allowed, unit="ms"),
        Figure("step_beside", steps, unit="ms"),
        Figure("next_p95_alone", nexts[False], unit="ms"),
        Figure("next_p95_beside", nexts[True], unit="ms"),
    ]


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--part", choices=["killed", "beside"])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--check", action="store_true")
    asked, figures = parser.parse_args(), list[Figure]()
    if asked.part != "beside":
        with TemporaryDirectory() as made:
            figures += killed(Path(made), asked.kills, asked.items)
    if asked.part != "killed":
        with TemporaryDirectory() as made:
            figures += beside(Path(made))
    return finish("jobs", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
