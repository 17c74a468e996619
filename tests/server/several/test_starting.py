"""An entry that cannot be started ends the server and is named. A function needs no model, and
the versions of a model do not change a function."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx2
import pytest
import yaml
from sqlalchemy import select

from headway.store.ledger.check import problems_of
from headway.store.ledger.ledger_tables import REQUESTS
from headway.store.ledger.reading import LedgerReader
from tests.server import served_process
from tests.server.running_server import until
from tests.server.served_process import FAKE_ENGINES

MODULE = "tests.server.several.served_functions"
CHAT = {"x-headway-lane": "chat"}
FINE = "def double(items: list[int]) -> list[int]:\n    return [2 * each for each in items]\n"


def begun(folder, models, **more):
    (folder / "fine.py").write_text(FINE)
    (folder / "broken.py").write_text("raise RuntimeError('not today')\n")
    (folder / "headway.yaml").write_text(
        yaml.safe_dump({"models": models, "server": {"port": 0}} | more)
    )
    command = [sys.executable, "-m", "headway", "serve", "--config", "headway.yaml"]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=os.environ | path, **pipes)


def test_an_entry_that_cannot_be_started_ends_the_server_and_is_named(tmp_path):
    two = [{"function": "fine:double"}, {"function": "broken:double", "name": "other"}]
    with begun(tmp_path, two) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "other: broken cannot be imported: RuntimeError: not today" in said
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What a server of two functions said while the import of the second one's module waited for
    this fixture, and then until its end; and its folder."""
    folder = tmp_path_factory.mktemp("alone")
    os.mkfifo(folder / "go")
    (folder / "slow.py").write_text(f"open({str(folder / 'go')!r}).read()\n{FINE}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    two = [{"function": "fine:double"}, {"function": "slow:double", "name": "slow"}]
    kept = {"ledger": {"url": "ledger.db"}, "prices": {"per_hour": 1}}
    with begun(folder, two, server={"port": port}, **kept) as process:
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                until(lambda: states(client) == {"double": "ready", "slow": "loading"})
                waiting = client.get("/ready")
                until(lambda: let_go(folder / "go"))  # the module may not be at its import yet
                until(lambda: client.get("/ready").status_code == 200)
                found = SimpleNamespace(folder=folder, waiting=waiting, ready=client.get("/ready"))
                found.health = states(client)
                found.answer = client.post("/v1/functions/double", json=4)
                found.none = client.post("/v1/completions", json={"prompt": "x"})
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        finally:
            let_go(folder / "go")
            process.kill()
    found.status = process.returncode
    return found


def test_a_server_of_functions_alone_answers_and_keeps_a_ledger(alone):
    assert alone.answer.json() == 8
    assert (alone.none.status_code, alone.none.json()["error"]["code"]) == (404, "model_not_found")
    assert alone.status == 0
    reader = LedgerReader(str(alone.folder / "ledger.db"))
    with reader.begin() as connection:
        models = connection.execute(select(REQUESTS.c.model)).scalars().all()
    assert models == ["double"] and problems_of(reader) == []
    reader.close()


def test_the_server_is_ready_only_when_all_functions_are_ready(alone):
    assert (alone.waiting.status_code, alone.waiting.json()["error"]["code"]) == (503, "loading")
    both = {"double": "ready", "slow": "ready"}
    assert alone.ready.json()["models"] == alone.health == both


def let_go(pipe):
    """Let a reader that waits for the pipe read that it is empty. Returns whether one waited."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def states(client):
    """The state of each entry. None: the server does not listen yet."""
    try:
        return client.get("/health").json()["models"]
    except httpx2.ConnectError:
        return None


def test_a_version_of_the_model_changes_no_function(tmp_path):
    """The call waits for longer than the version's limit, and for less than the file's."""
    lanes = {"chat": {"e2e": "20s"}, "bulk": {}}
    config = {
        "models": [{"name": "one"}, {"function": f"{MODULE}:shout"}],
        "engine": {"slots": 2, "threads": 1},
        "lanes": lanes,
        "server": {"default_lane": "bulk"},
        "versions": {"store": str(tmp_path / "versions.db")},
    }
    with (
        served_process.served(config, tmp_path, FAKE_ENGINES) as found,
        ThreadPoolExecutor() as pool,
        httpx2.Client(base_url=found.url, timeout=60) as client,
    ):
        change = {"config": {"lanes": {"chat": {"e2e": "1ms"}}}, "reason": "shorter"}
        number = client.post("/v1/versions", json=change).json()["number"]
        assert client.post(f"/v1/versions/{number}/promote", json={}).status_code == 200
        now = client.get("/v1/config/effective").json()["lanes"]["chat"]["e2e"]
        assert now != "20s", "the version is in force"
        first = pool.submit(client.post, "/v1/functions/shout", json="slow")
        answer = client.post("/v1/functions/shout", json="slow", headers=CHAT)
        assert (answer.status_code, answer.text) == (200, '"SLOW"')
        assert first.result().status_code == 200
        (told,) = client.get("/v1/functions").json()["data"]
        assert told["lanes"]["chat"]["budget"] == 20
