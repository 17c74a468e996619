"""Three faults that must be real: a client that reads slowly, grammars that take long to compile,
and a neighbour that slows the steps of a real engine. Each with the embedded model.

Every function serves for some seconds and returns what `headway diagnose` says.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.server_overhead.served import Served, serving
from headway.commands.diagnose.diagnosis import Diagnosis, diagnose
from headway.commands.diagnose.sources.from_journal import journal_evidence
from headway.commands.replay.recording import Recording
from headway.core.batch import Output
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane
from headway.core.policies.policies import usual
from headway.core.request import Request
from headway.engine import Executor
from headway.executor.forwarding import Forwarding
from headway.executor.torch.threads import set_thread_count
from headway.journal.record import Record
from headway.runs.live_testbed import load_model, make_testbed
from headway.runs.run import Run
from headway.runs.shared_executor import SharedExecutor

MS, SECOND = 1_000_000, 1_000_000_000
SLOTS = 8
Said = Mapping[str, Any]  # of `headway diagnose --json`


def diagnosed(*arguments: str) -> Said:
    """What the command prints."""
    command = [sys.executable, "-m", "headway", "diagnose", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    said: Said = json.loads(done.stdout)
    return said


# -- a client


def _raw_stream(server: Served, pause: float, tokens: int) -> None:
    """Ask for a stream with log-probabilities and read nothing for `pause` seconds. The socket's
    own buffer is small, or it would take the whole answer."""
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": "Write a list."}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
            "logprobs": True,
            "top_logprobs": 20,
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {server.host}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    ).encode()
    with socket.socket() as connection:
        # As over the internet: with loopback's large segments the kernel would hold a megabyte.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(60)
        connection.connect((server.host, server.port))
        connection.sendall(head + body)
        time.sleep(pause)
        while connection.recv(65_536):
            pass


def slow_client(pause: float = 8.0, clients: int = 4) -> Said:
    """pause: 0 is a client that reads at once."""
    config = {"engine": {"slots": SLOTS}, "lanes": {"standard": {"ttft": "30s", "tpot": "5s"}}}
    with TemporaryDirectory() as folder, serving(config, Path(folder)) as server:
        _raw_stream(server, 0.0, 50)  # one-time work is done before the measurement
        threads = [
            threading.Thread(target=_raw_stream, args=(server, pause, 180)) for _ in range(clients)
        ]
        found = list[Said]()
        url = f"http://{server.host}:{server.port}"
        looks = threading.Thread(
            target=lambda: found.append(diagnosed("--url", url, "--seconds", str(pause + 9)))
        )
        looks.start()
        time.sleep(3.0)  # the command has started by then
        for each in threads:
            each.start()
        for each in (*threads, looks):
            each.join()
        return found[0]


# -- grammars


def _schema(number: int, fields: int) -> Said:
    """A schema of its own, with ranges of whole numbers: the compiler must unfold each."""
    return {
        "type": "object",
        "properties": {
            f"f{n}": {"type": "integer", "minimum": n + number, "maximum": 10**15 + 7 * n}
            for n in range(fields)
        },
    }


def _complete(server: Served, body: Said) -> int:
    connection = HTTPConnection(server.host, server.port, timeout=60)
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"}
    )
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def grammar_compile(fields: int = 700, requests: int = 30) -> Said:
    """Every third request brings a schema that was never sent before. fields: 0 is none."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        config = {
            "engine": {"slots": SLOTS, "journal": str(folder / "run.jsonl")},
            "server": {"limits": {"grammar_compile": "20s"}},
            "lanes": {"standard": {"ttft": "250ms"}},
        }
        with serving(config, folder) as server:
            _complete(server, {"prompt": "a", "max_tokens": 2})
            for number in range(requests):
                body = {"prompt": f"A list is {number}", "max_tokens": 4}
                if fields and number % 3 == 0:
                    schema = {"json_schema": {"name": "s", "schema": _schema(number, fields)}}
                    body |= {"response_format": {"type": "json_schema", **schema}}
                _complete(server, body)
        (journal,) = folder.glob("run-*.jsonl")
        return diagnosed("--journal", str(journal))


# -- a neighbour


class Delayed(Forwarding):
    """Steps take `delay` seconds longer in the first `busy` of every `period` seconds."""

    def __init__(self, executor: Executor, delay: float, busy: float, period: float) -> None:
        super().__init__(executor)
        self._delay, self._busy, self._period = delay, busy, period
        self._began = time.monotonic()

    def submit(self, batch: Any) -> int:
        return self.executor.submit(batch)

    def collect(self, ticket: int) -> Output:
        output = self.executor.collect(ticket)
        if (time.monotonic() - self._began) % self._period < self._busy:
            time.sleep(self._delay)
        return output


def _arrivals(seconds: float, gap: float, seed: int) -> Sequence[Request]:
    draw, at, made = Random(seed), 1.0, list[Request]()
    while (at := at + draw.expovariate(1 / gap)) < seconds:
        prompt = tuple(draw.randrange(100, 3_000) for _ in range(draw.randrange(20, 60)))
        made.append(Request(f"r{len(made)}", prompt, 16, int(at * SECOND), "chat"))
    return made


def noisy_neighbour(delay: float = 0.08, seconds: float = 12.0, seed: int = 1) -> Diagnosis:
    """delay: how much longer a step in a burst takes; 0 is a machine without that neighbour."""
    loaded = load_model(None, SLOTS, "float32")
    set_thread_count(1)  # as `headway serve` has it for a small model
    executor = Delayed(loaded.executor, delay, 1.5, 5.0)
    testbed = replace(make_testbed(loaded, "headway-tiny"), executor=SharedExecutor(executor))
    tpot = 45 * MS if delay else SECOND
    lanes = (Lane("chat", Budget(ttft=2 * SECOND, tpot=tpot)),)
    records = list[Record]()
    run = Run(testbed, usual(SLOTS), lanes, _arrivals(seconds, 0.08, seed))
    run.serve(keep=records.append)
    recording = Recording("live", {}, run.scheduler.settings, tuple(records), cut=False)
    return diagnose(journal_evidence(recording, StepCost())[0])
