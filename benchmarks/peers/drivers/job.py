"""What a driver is told, what it answers, and how requests are fed to an engine.

A driver runs in its engine's own environment, as `python -m benchmarks.peers.drivers.NAME JOB OUT`:
it imports the standard library, its engine, this, and numpy, which all of them have. OUT is written
after each workload, so that what was measured is kept when the time is up. A job in turns has one
workload, which is answered once for each line of the input.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.peers.workloads import Request, Workload, from_json

REST = 10.0  # seconds after the warm-up: what an engine does once, and in the background, is done
READ, TURNS = 256 << 20, 5  # bytes that each thread reads at once, and how often
READY = "ready for a turn"  # what a driver in turns prints


class Engine(Protocol):
    """One engine with a model in it. Greedy; answers have their full length."""

    about: dict[str, str]  # version, and the precision it computes in

    def run(self, workload: Workload) -> dict[int, list[int]]:
        """The answers' tokens by the request's number; at most `most` are outstanding."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a driver is to do."""

    model: str  # a folder or a file
    precision: str  # "16bit" or "int8"
    threads: int
    began: float  # time.time() when the process was started
    warm_up: Workload
    workloads: tuple[Workload, ...]
    turns: bool  # answer the only workload whenever a line is read, until the input ends

    @classmethod
    def read(cls, path: Path) -> "Job":
        found = json.loads(path.read_text())
        found["warm_up"] = from_json(found["warm_up"])
        found["workloads"] = tuple(from_json(each) for each in found["workloads"])
        return cls(**found)


def drive(load: Callable[[Job], Engine]) -> None:
    """Load, answer one token, warm up, rest, and answer each workload; write what was found."""
    job, out = Job.read(Path(sys.argv[1])), Path(sys.argv[2])
    imported = time.time()
    engine = load(job)
    found: dict[str, Any] = {"about": engine.about, "workloads": {}}
    first = Workload("first", (Request((11, 12, 13, 14), 1),), 1)
    assert len(_counted(engine, first)[0]) == 1
    ended = time.time()
    found |= {"start": ended - job.began, "load": ended - imported}
    _counted(engine, job.warm_up)
    time.sleep(REST)
    if job.turns:
        return _turns(engine, job, found, out)
    for workload in job.workloads:
        began = time.perf_counter()
        _counted(engine, workload)
        seconds = time.perf_counter() - began
        found["workloads"][workload.name] = {"seconds": seconds, "tokens": workload.answers}
        out.write_text(json.dumps(found))


def _turns(engine: Engine, job: Job, found: dict[str, Any], out: Path) -> None:
    """A turn for each line. Memory is read just before and after it: the faster one counts."""
    (workload,) = job.workloads
    found["answer"] = _counted(engine, workload)[0]
    found["turns"] = turns = list[dict[str, float]]()
    out.write_text(json.dumps(found))
    print(READY, flush=True)
    for _ in sys.stdin:
        before = bytes_read(job.threads)
        began = time.perf_counter()
        _counted(engine, workload)
        seconds = time.perf_counter() - began
        read = max(before, bytes_read(job.threads))
        turns.append({"seconds": seconds, "tokens": workload.answers, "read": read})
        out.write_text(json.dumps(found))
        print(READY, flush=True)


def bytes_read(threads: int) -> float:
    """Bytes read from memory in a second by so many threads at once: the most of some turns."""
    numbers = [np.ones(READ // 8) for _ in range(threads)]
    best = 0.0
    for _ in range(TURNS):
        readers = [threading.Thread(target=np.sum, args=(each,)) for each in numbers]
        began = time.perf_counter()
        for each in readers:
            each.start()
        for each in readers:
            each.join()
        best = max(best, threads * READ / (time.perf_counter() - began))
    return best


def _counted(engine: Engine, workload: Workload) -> Mapping[int, list[int]]:
    """The answers. An engine that left one out or cut it short is not measured."""
    answers = engine.run(workload)
    lengths = [len(answers.get(number, ())) for number in range(len(workload.requests))]
    if lengths != [each.answer for each in workload.requests]:
        raise SystemExit(f"{workload.name}: answers of {lengths} tokens")
    return answers


class Stepped:
    """For engines whose callers add requests and then step: at most `most` outstanding."""

    about: dict[str, str]

    def add(self, number: int, request: Request) -> None:
        raise NotImplementedError

    def step(self) -> Mapping[int, list[int]]:
        """Compute one step. The answers that have ended with it."""
        raise NotImplementedError

    def run(self, workload: Workload) -> dict[int, list[int]]:
        answers: dict[int, list[int]] = {}
        asked = 0
        while len(answers) < len(workload.requests):
            while asked < len(workload.requests) and asked - len(answers) < workload.most:
                self.add(asked, workload.requests[asked])
                asked += 1
            answers |= self.step()
        return answers
