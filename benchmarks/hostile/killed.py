"""The engine process is killed while answers stream. Who hears of it, and when is it back?"""

import json
import os
import signal
import threading
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep

from benchmarks.hostile.others import PATIENCE, PAUSE, Others, text
from benchmarks.report import Figure
from benchmarks.server_overhead.served import Served, children, serving

STREAMS = 8
BACK = 60.0  # seconds after which the wait for it is given up
HEARD, HEALTH = 1.0, 1_000.0  # aims: seconds, milliseconds
ASKED = {"prompt": "The json module", "max_tokens": 1_900, "ignore_eos": True, "stream": True}


class Listener(threading.Thread):
    """One streaming caller. It has heard once its answer has ended, in whatever way."""

    def __init__(self, served: Served) -> None:
        super().__init__(daemon=True)
        self._line = HTTPConnection(served.host, served.port, timeout=PATIENCE)
        self.begun = threading.Event()
        self.at, self.last = 0.0, b""  # when it ended; the last data before [DONE]
        self.start()

    def run(self) -> None:
        try:
            about = {"Content-Type": "application/json"}
            self._line.request("POST", "/v1/completions", json.dumps(ASKED), about)
            for line in self._line.getresponse():
                if line.startswith(b"data: {"):
                    self.last = line
                    self.begun.set()
            self.at = monotonic()
        except TimeoutError:
            pass  # it hangs
        except (OSError, HTTPException):
            self.at = monotonic()
        finally:
            self.begun.set()
            self._line.close()


def engine(served: Served) -> int:
    for pid in children(served.pid):
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise SystemExit("the server has no engine process")


def killed(folder: Path) -> list[Figure]:
    with serving({}, folder, log=folder / "log") as served:
        others = Others(served)
        callers = [Listener(served) for _ in range(STREAMS)]
        for each in callers:
            each.begun.wait(PATIENCE)
        streaming = [each for each in callers if each.is_alive()]
        assert len(streaming) == STREAMS, "an answer ended before the engine was killed"
        with others.probing():
            os.kill(engine(served), signal.SIGKILL)
            began = monotonic()
            back = BACK
            while monotonic() - began < BACK:
                if text(served):
                    back = monotonic() - began
                    break
                sleep(PAUSE)
            for each in callers:
                each.join(PATIENCE)
        right = others.is_right(text(served))
    heard = [each.at - began if each.at else PATIENCE for each in callers]
    return [
        Figure("killed_heard_s", [max(heard)], most=HEARD, unit="s"),
        Figure("killed_told", [sum(b'"error"' in each.last for each in callers)], least=STREAMS),
        Figure("killed_hang", [sum(not each.at for each in callers)], most=0),
        Figure("killed_health_ms", [max(others.health)], most=HEALTH, unit="ms"),
        Figure("killed_back_s", [back], most=BACK / 2, unit="s"),
        Figure("killed_same", [float(right)], least=1.0),
    ]
