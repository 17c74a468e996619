"""`serve` as a user has it: a process with an engine process of its own, and signals."""

import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx2
import pytest

from headway.errors import SettingError
from headway.server.run import UNREAD, listen

CODE = """
import sys
from rich.console import Console
from headway.server.config import ServerConfig
from headway.server.run import serve
if __name__ == "__main__":
    sys.exit(serve(ServerConfig(server={"port": 0}), Console(width=200)))
"""


@contextmanager
def running(folder):
    """The process, and its URL once the model is loaded."""
    script = folder / "served.py"
    script.write_text(CODE)
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if found := re.search(r"http://\S+/v1", line):
                break
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def test_the_first_signal_lets_what_runs_end(tmp_path):
    with running(tmp_path) as (process, url):
        asked = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "stream": True}
        with httpx2.stream("POST", f"{url}/completions", json=asked, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            *_, last = [line for line in lines if line]
        assert last == "data: [DONE]"
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "draining: 1 requests" in out


def test_the_second_signal_ends_at_once(tmp_path):
    with running(tmp_path) as (process, url):
        asked = {"prompt": "x", "max_tokens": 2_000, "ignore_eos": True, "stream": True}
        with httpx2.stream("POST", f"{url}/completions", json=asked, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            assert any("once more to end at once" in line for line in process.stdout)
            process.send_signal(signal.SIGTERM)
            said = [line for line in lines if line.startswith("data: ")]
            assert "the server has closed" in said[-2] and len(said) < 2_000
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_a_signal_while_loading_ends_it(tmp_path):
    script = tmp_path / "served.py"
    script.write_text(CODE)
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert "starting torch" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "serves" not in out and "Traceback" not in err


def test_a_port_in_use_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no such option elsewhere")
def test_who_takes_nothing_of_what_it_is_sent_is_not_kept_for_ever():
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            kept = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert kept == UNREAD
