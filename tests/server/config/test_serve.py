"""`serve` as a user runs it: a process with an engine process of its own, and signals. The first
server has the embedded model; the others have engines with the fake executor.
"""

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from headway.costing.calibration import write_cost_file
from headway.errors import SettingError
from headway.models import display_name
from headway.server.listening.sockets import UNREAD, listen
from tests.commands.small_cost_model import CALIBRATION
from tests.server.ledger.kept import exact, stored

CODE = """
if __name__ == "__main__":  # which the engine process, that imports this module, does not run
    import sys
    from rich.console import Console
    from headway.server.config.config import ServerConfig
    from headway.server.run import serve
    sys.exit(serve(ServerConfig(server={"port": 0}, ...), Console(width=200)))
"""
FAKE_ENGINE = """
from headway.server import backends
from tests.server.fake_engines import FakeEngine
backends.EngineOptions = FakeEngine
"""


def begun(folder, code, **pipes):
    """Start a program that may import modules of the tests."""
    script = folder / "served.py"
    script.write_text(code)
    places = {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    pipes = {"stdout": subprocess.PIPE, **pipes}
    return subprocess.Popen([sys.executable, script], env=os.environ | places, text=True, **pipes)


@contextmanager
def running(folder, more="", before=FAKE_ENGINE):
    """Start the process; gives it with its URL once the model is loaded. more: configuration.
    before: code that it begins with."""
    process = begun(folder, before + CODE.replace("...", more))
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # so that the pipe is soon full
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4_096)
    try:
        for line in process.stdout:
            if found := re.search(r"http://\S+/v1", line):
                break
        yield process, found[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_banner_says_that_a_cost_file_is_unreliable_and_the_first_signal_drains(tmp_path):
    errors = {"all": {"median": -503, "p90": 700, "total": -410}}
    marked = replace(CALIBRATION, model=display_name(None), about={"errors": errors})
    write_cost_file(marked, tmp_path / "cost.json")
    cost = str(tmp_path / "cost.json")
    more = f"engine={{'cost': {cost!r}}}, models=[{{'dtype': {marked.dtype!r}}}]"
    with running(tmp_path, more, before="") as (process, url):
        said = next(line for line in process.stdout if "unreliable" in line)
        assert "the cost file is unreliable" in said and "-50% in the median step" in said
        assert "measured elsewhere or otherwise: processor Abacus 3 (here" in next(process.stdout)
        asked = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "stream": True}
        with httpx2.stream("POST", f"{url}/completions", json=asked, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            *_, last = [line for line in lines if line]
        assert last == "data: [DONE]"
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "draining: 1 requests" in out


def test_the_second_signal_ends_the_server_at_once(tmp_path):
    with running(tmp_path) as (process, url):
        asked = {"prompt": "x", "max_tokens": 2_000, "ignore_eos": True, "stream": True}
        with httpx2.stream("POST", f"{url}/completions", json=asked, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            assert any("a second signal ends the server at once" in line for line in process.stdout)
            process.send_signal(signal.SIGTERM)
            said = [line for line in lines if line.startswith("data: ")]
            assert "the server has closed" in said[-2] and len(said) < 2_000
        process.communicate(timeout=60)
        assert process.returncode == 0


LISTENING = """
from headway.server import run

def listen(*given):
    found = real(*given)
    print(found.getsockname()[1], flush=True)
    return found

real, run.listen = run.listen, listen
"""


@pytest.fixture(scope="module")
def ended_early(tmp_path_factory):
    """A server that refused a request and was then ended by a signal, all while its engine loaded:
    its exit status, output and errors, the request's status, and the folder of its ledger."""
    folder = tmp_path_factory.mktemp("early")
    ledger = f"ledger={{'url': {str(folder / 'ledger.db')!r}, 'flush': '60s'}}"
    code = LISTENING + CODE.replace("...", ledger)
    with begun(folder, code, stderr=subprocess.PIPE) as process, ExitStack() as leaving:
        leaving.callback(process.kill)
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/v1/completions"
        assert "starting torch" in process.stdout.readline()
        if sys.platform == "linux":  # its children are found in /proc
            engine = os.pidfd_open(engine_of(process))
            leaving.callback(os.close, engine)
            leaving.callback(killed, engine)
            signal.pidfd_send_signal(engine, signal.SIGSTOP)  # so that it loads until the end
        refused = httpx2.post(url, json={"prompt": "x"}, timeout=60)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err, refused.status_code, folder


def killed(process):
    """Kill a process, which may be gone or may be stopped."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)


def test_a_signal_while_loading_ends_the_server(ended_early):
    status, out, err, *_ = ended_early
    assert status == 0
    assert "serves" not in out and "Traceback" not in err


def test_a_refusal_while_loading_is_in_the_ledger_after_a_signal_ends_the_server(ended_early):
    status, _, _, refused, folder = ended_early
    assert (status, refused) == (0, 503)
    assert [row["code"] for row in stored(folder)] == ["loading"] and exact(folder)


def test_a_port_in_use_is_reported_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=f"cannot listen on 127.0.0.1:{port}.* --port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.7", "no.such.host.invalid"])
def test_the_error_for_an_unavailable_host_suggests_another_host(host):
    with pytest.raises(SettingError, match=f"cannot listen on {host}:0: .*with --host"):
        listen(host, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no such option elsewhere")
def test_accepted_connections_have_a_timeout_for_unread_data():
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            kept = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert kept == UNREAD


def engine_of(process):
    """The id of the engine process: the spawned child, not multiprocessing's resource tracker."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (found,) = [
        int(each) for each in listed if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="its children are found in /proc")
def test_an_engine_that_is_down_for_good_ends_the_server_with_status_1(tmp_path):
    with running(tmp_path, 'engine={"restart": 0}') as (process, _):
        os.kill(engine_of(process), signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "engine down for good" in out and "killed by SIGKILL" in out


def test_an_output_that_is_not_read_delays_no_request(tmp_path):
    """With a pipe that stays full, requests are answered, and the server ends on a signal."""
    with running(tmp_path) as (process, url):
        with httpx2.Client(base_url=url) as client:
            for _ in range(60):  # one line each; the pipe holds a page
                client.get("/models", headers={"x-request-id": "x" * 200}).raise_for_status()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
