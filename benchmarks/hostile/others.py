"""Users during an attack: a probe that asks for /health, and a caller whose answer is known."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPConnection, HTTPException
from time import monotonic

from benchmarks.server_overhead.served import PAGE, Served, children

PATIENCE = 30.0  # seconds for one answer; without one, this counts as the wait
PAUSE = 0.1  # seconds between two
ASKED = {"prompt": "The json module", "max_tokens": 24, "temperature": 0, "ignore_eos": True}


def asked(served: Served, method: str, path: str, body: str = "") -> bytes:
    """Ask on a new connection; empty if the answer is not a 200."""
    line = HTTPConnection(served.host, served.port, timeout=PATIENCE)
    try:
        line.request(method, path, body or None, {"Content-Type": "application/json"})
        answer = line.getresponse()
        said = answer.read()
        return said if answer.status == 200 else b""
    except (OSError, HTTPException):
        return b""
    finally:
        line.close()


def resident(served: Served) -> float:
    """Of front and engine, in MB."""
    pages = 0
    for pid in (served.pid, *children(served.pid)):
        with open(f"/proc/{pid}/statm") as file:
            pages += int(file.read().split()[1])
    return pages * PAGE / 1e6


def text(served: Served) -> str:
    said = asked(served, "POST", "/v1/completions", json.dumps(ASKED))
    return str(json.loads(said)["choices"][0]["text"]) if said else ""


class Others:
    """What the probe and the caller have met with so far."""

    def __init__(self, served: Served) -> None:
        self.served, self.right = served, text(served)
        self.health: list[float] = []  # milliseconds; a failure counts as PATIENCE
        self.same: list[bool] = []
        self.memory = [resident(served)]

    def probe(self) -> None:
        began = monotonic()
        well = asked(self.served, "GET", "/health")
        self.health.append(1e3 * (monotonic() - began if well else PATIENCE))
        self.memory.append(resident(self.served))

    def call(self) -> None:
        self.same.append(self.is_right(text(self.served)))

    def is_right(self, said: str) -> bool:
        """Whether the answer is as before the attack. None is, if there was no answer then."""
        return bool(self.right) and said == self.right

    def at_work(self) -> AbstractContextManager[None]:
        """Probe and caller both ask again and again, until the block is left."""
        return self._working(self.probe, self.call)

    def probing(self) -> AbstractContextManager[None]:
        """Likewise, with the probe alone."""
        return self._working(self.probe)

    @contextmanager
    def _working(self, *works: Callable[[], None]) -> Iterator[None]:
        over = threading.Event()

        def again(work: Callable[[], None]) -> None:
            while not over.is_set():
                work()
                over.wait(PAUSE)

        threads = [threading.Thread(target=again, args=(each,)) for each in works]
        for each in threads:
            each.start()
        try:
            yield
        finally:
            over.set()
            for each in threads:
                each.join()
