"""Restarts of the engine: real processes that are killed or hang, then the rules with fakes."""

import asyncio
import json
import os
import re
import shutil
import signal
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx2
import pytest

from headway.core.ledger import SizeChange
from headway.core.load import Load
from headway.errors import CheckpointError, EngineDownError
from headway.models import EMBEDDED
from headway.server.config.config import ServerConfig
from headway.server.config.engine_options import engine_options
from headway.server.engine import client as engine_client
from headway.server.engine import restarts
from headway.server.engine.handle import EngineState
from headway.server.engine.messages import EngineOptions
from headway.server.engine.restarts import RestartingEngine
from headway.server.intake.service import Service
from headway.server.intake.tokenizing import AsyncTokenizer
from headway.server.observe.logs import logger
from headway.text.tokenizer import Tokenizer
from tests.server.fake_engines import FakeEngine
from tests.server.running_server import app_of, tokenizer

ENGINE = {"slots": 2, "context": 512, "threads": 1}
LONG = {"prompt": "x", "max_tokens": 400, "ignore_eos": True}


@asynccontextmanager
async def asked(config, most, lines):
    """An application whose engine process is restarted, and a client."""
    engine = RestartingEngine(
        FakeEngine(**engine_options(config)), most, logger("info", lines.append)
    )
    service = Service(config, engine)
    engine.renewed = service.model.engine_ready
    standing = None
    try:
        welcome = await engine.start(lambda said: None)
        service.model.ready(AsyncTokenizer(tokenizer(), EMBEDDED), welcome.eos)
        standing = asyncio.create_task(engine.stand())
        transport = httpx2.ASGITransport(app=app_of(service))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield engine, service, client, standing
    finally:
        if standing:
            standing.cancel()
        await engine.close()
        service.close()


async def until(holds):
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


def test_a_dead_engine_is_restarted_and_a_hang_after_the_last_restart_is_final(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(restarts, "PAUSE", 0.2)
    lines = []
    config = ServerConfig(engine={**ENGINE, "journal": str(tmp_path / "run.jsonl")})

    async def scene(engine, service, client, standing):
        async def ask(**rest):
            answer = await client.post("/v1/completions", json={**LONG, **rest})
            return answer, answer.json().get("error", {}).get("message", "")

        async def broken(harm):
            """What a running request is told."""
            asking = asyncio.create_task(ask())
            await until(lambda: engine.load.running)
            os.kill(engine.pid, harm)
            return await asking

        first = engine.pid
        heard, why = await broken(signal.SIGKILL)
        assert heard.status_code == 503 and "has died: killed by SIGKILL" in why
        assert int(heard.headers["retry-after"]) > 0
        await until(lambda: engine.state is EngineState.LOADING)
        refused, why = await ask()
        assert refused.status_code == 503 and "is being started again, because it failed" in why
        assert "SIGKILL" in why and int(refused.headers["retry-after"]) > 0
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/ready")).status_code == 503
        assert 'state="loading"} 1.0' in (await client.get("/metrics")).text
        shown = (await client.get("/dashboard")).text
        assert "has failed: the engine process has died: killed by SIGKILL" in shown
        await until(lambda: engine.state is EngineState.READY)
        assert engine.pid not in (0, first) and not engine.down
        assert (await ask(max_tokens=3))[0].status_code == 200
        assert engine.load.free_blocks == engine.load.num_blocks
        said = (await client.get("/metrics")).text
        ends = re.findall(r'headway_requests_total\{.*outcome="(\w+)".*\} ([1-9].*)', said)
        assert sorted(ends) == [("error", "1.0"), ("good", "1.0"), ("refused", "1.0")]
        assert not service.metrics.models[0]._requests._failed, "no row of it will come"
        assert len(list(tmp_path.glob("run-*.jsonl"))) == 2, "each has a journal of its own"

        monkeypatch.setattr(engine_client, "SILENT", 1.0)
        engine._client._watch()
        heard, why = await broken(signal.SIGSTOP)
        assert heard.status_code == 503 and "its device may hang" in why
        await asyncio.wait_for(standing, 60)
        assert engine.state is EngineState.DOWN and "may hang" in engine.down
        assert (await client.get("/health")).status_code == 503
        lanes = (await client.get("/v1/lanes")).json()
        assert (lanes["running"], lanes["data"]) == (0, []), "nothing runs in it any more"

    async def main():
        async with asked(config, 1, lines) as about:
            await scene(*about)

    asyncio.run(main())
    events = [line["event"] for line in lines if line.get("source") != "engine"]
    assert events == ["engine down", "engine restarted", "engine down for good"]
    assert lines[0]["cause"].startswith("the engine process has died: killed by SIGKILL")


class Played:
    """Replaces an EngineClient; it dies when told to."""

    def __init__(self, options, said):
        self.options, self.state, self.down, self.load = options, EngineState.LOADING, "", Load()
        self.pid, self.fault, self.ends, self.ended = 1, None, True, False
        self._over = asyncio.Event()
        self.welcome = SimpleNamespace(
            folder="f", eos=frozenset(), context=512, capacity=500, tokenizer=tokenizer()
        )
        self.starts(self)

    async def start(self, progress=None):
        if self.fault:
            raise self.fault
        self.state = EngineState.READY
        return self.welcome

    def fail(self, why):
        self.state, self.down = EngineState.DOWN, self.down or why
        self._over.set()

    async def over(self):
        await self._over.wait()

    async def end(self):
        self.ended = True
        return self.ends

    async def drain(self, timeout, whole):
        self.state = EngineState.DOWN if self.down else EngineState.DRAINING
        self._over.set()


@pytest.fixture
def played(monkeypatch):
    """The engines that were started, and the pauses between them; time is set by hand."""
    seen = SimpleNamespace(remotes=[], pauses=[], now=0, alter=lambda remote: None)

    def starts(remote):
        seen.remotes.append(remote)
        seen.alter(remote)

    async def sleep(seconds, real=asyncio.sleep):
        seen.pauses.append(seconds)
        await real(0)

    monkeypatch.setattr(Played, "starts", staticmethod(starts), raising=False)
    monkeypatch.setattr(restarts, "EngineClient", Played)
    monkeypatch.setattr(restarts, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(restarts, "clock", SimpleNamespace(now=lambda: seen.now))
    seen.lines = []
    seen.made = lambda most: RestartingEngine(
        EngineOptions(), most, logger("info", seen.lines.append)
    )
    return seen


def stood(engine, scene):
    async def main():
        await engine.start(lambda said: None)
        standing = asyncio.create_task(engine.stand())
        await scene(standing)
        async with asyncio.timeout(30):
            await standing

    asyncio.run(main())


def test_pauses_between_restarts_grow_and_the_last_fault_is_final(played):
    engine = played.made(4)

    async def scene(standing):
        for count in range(1, 6):
            await until(lambda count=count: len(played.remotes) == count)
            await until(lambda: engine.state is EngineState.READY)
            played.remotes[-1].fail(f"fault {count}")

    stood(engine, scene)
    assert played.pauses == [1.0, 4.0, 16.0, 30.0]
    assert (engine.state, engine.down) == (EngineState.DOWN, "fault 5")
    assert played.lines[-1]["event"] == "engine down for good"


def test_each_change_of_a_size_is_logged(played):
    engine = played.made(0)

    async def scene(standing):
        await until(lambda: engine.state is EngineState.READY)
        window = SizeChange("", "window", 5_000_000, 6_250_000, "8 of 8 kept the budget", 7)
        change = SizeChange("chat", "slots", 4, 5, "8 of 8 kept the budget", 7)
        played.remotes[-1].resized([change, window])
        played.remotes[-1].fail("the end")

    stood(engine, scene)
    line, other = [each for each in played.lines if each["event"] == "size changed"]
    assert (other["lane"], other["before_ms"], other["after_ms"]) == ("", 5.0, 6.25)
    assert (line["level"], line["lane"], line["what"]) == ("info", "chat", "slots")
    assert (line["before"], line["after"]) == (4, 5)
    assert line["reason"] == "8 of 8 kept the budget"


def test_ten_minutes_of_service_reset_the_count_of_faults(played):
    engine = played.made(1)

    async def scene(standing):
        for count in (1, 2, 3):
            await until(lambda count=count: len(played.remotes) == count)
            await until(lambda: engine.state is EngineState.READY)
            played.now += 601_000_000_000 if count < 3 else 599_000_000_000
            played.remotes[-1].fail("again")

    stood(engine, scene)
    assert played.pauses == [1.0, 1.0] and engine.state is EngineState.DOWN


@pytest.mark.parametrize(
    "fault, why",
    [
        (CheckpointError("the model has gone"), "the model has gone"),
        (OSError(12, "Cannot allocate memory"), "[Errno 12] Cannot allocate memory"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
    ],
)
def test_an_engine_that_cannot_start_counts_as_a_fault_with_its_cause(played, fault, why):
    def alter(remote):
        if len(played.remotes) > 1:
            remote.fault = fault

    played.alter = alter
    engine = played.made(2)

    async def scene(standing):
        played.remotes[0].fail("first")

    stood(engine, scene)
    assert played.pauses == [1.0, 4.0] and engine.down == why


def with_other_ids(folder):
    """The embedded model's tokenizer, with the ids of its tokens in another order."""
    shutil.copytree(EMBEDDED, folder)
    path = folder / "tokenizer.json"
    path.chmod(0o644)
    written = json.loads(path.read_text())
    known = written["model"]["vocab"]
    later = [word for word, id in known.items() if id >= 300]
    known |= dict(zip(later, [known[word] for word in reversed(later)], strict=True))
    path.write_text(json.dumps(written))
    return Tokenizer(folder, 4096)


@pytest.mark.parametrize("name", ["folder", "tokenizer"])
def test_a_restart_with_another_model_under_the_same_tokenizer_is_refused(played, name, tmp_path):
    others = {"folder": "another", "tokenizer": with_other_ids(tmp_path / "model")}

    def alter(remote):
        if len(played.remotes) > 1:
            setattr(remote.welcome, name, others[name])

    played.alter = alter
    engine = played.made(1)

    async def scene(standing):
        played.remotes[0].fail("first")

    stood(engine, scene)
    assert engine.down == f"the model's {name} is another than when the server started"
    assert [each.ended for each in played.remotes] == [True, True], "nor does it keep its memory"


def test_a_restarted_engine_takes_no_requests_before_its_model_is_checked(played):
    checked = asyncio.Event()

    def alter(remote):
        async def start(progress=None):
            remote.state = EngineState.READY
            await checked.wait()
            return remote.welcome

        if len(played.remotes) > 1:
            remote.start = start

    played.alter = alter
    engine = played.made(1)
    renewed = []
    engine.renewed = lambda: renewed.append(engine.state)

    async def scene(standing):
        played.remotes[0].fail("first")
        await until(
            lambda: played.remotes[-1].state is EngineState.READY and len(played.remotes) == 2
        )
        assert (engine.state, engine.down, renewed) == (EngineState.LOADING, "first", [])
        with pytest.raises(EngineDownError, match="first"):
            engine.submit([], None)
        checked.set()
        await until(lambda: engine.state is EngineState.READY)
        assert not engine.down and renewed
        played.remotes[-1].fail("second")

    stood(engine, scene)
    assert engine.down == "second"


def test_the_first_fault_is_final_without_restarts_or_if_the_process_cannot_be_killed(played):
    engine, heard = played.made(0), []
    engine.gave_up = lambda: heard.append(engine.state)

    async def scene(standing):
        played.remotes[-1].fail("why")

    stood(engine, scene)
    assert heard == [EngineState.DOWN]
    assert (engine.state, engine.down, played.pauses) == (EngineState.DOWN, "why", [])

    engine = played.made(3)
    played.remotes[-1].ends = False
    stood(engine, scene)
    assert engine.state is EngineState.DOWN and not played.pauses
    assert played.lines[-1]["cause"] == "the engine's process cannot be ended"


def test_between_two_engines_nothing_runs_and_a_drain_prevents_the_next_start(played, monkeypatch):
    engine, states = played.made(3), []

    async def held(seconds, real=asyncio.sleep):
        states.append(engine.state)
        with pytest.raises(EngineDownError, match="first"):
            engine.submit([], None)
        assert engine.load == Load(capacity=500)
        await engine.drain(1)
        states.append(engine.state)

    monkeypatch.setattr(restarts, "asyncio", SimpleNamespace(sleep=held))

    async def scene(standing):
        played.remotes[0].fail("first")

    stood(engine, scene)
    assert states == [EngineState.LOADING, EngineState.DRAINING] and len(played.remotes) == 1


def test_an_error_in_the_engine_process_is_logged_as_an_error(played):
    engine = played.made(1)
    for line in ("ERROR: the journal has stopped: full", "WARNING: slow", "native: words"):
        engine._hear(line)
    heard = [(line["level"], line["event"]) for line in played.lines]
    assert heard == [
        ("error", "the journal has stopped: full"),
        ("warning", "slow"),
        ("warning", "native: words"),
    ]
