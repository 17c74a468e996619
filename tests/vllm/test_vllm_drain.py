"""A server answers what it has begun when Ctrl-C reaches all its processes, vLLM's workers too."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copytree

import httpx2
import pytest

from headway.models import EMBEDDED

TOKENS = 960  # so many that the answer outlasts the signal, also on a busy machine
ASKED = {"prompt": "x", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
ASKED["stream_options"] = {"include_usage": True}
CONFIG = """engine: {executor: vllm, vllm: {enforce_eager: true}, slots: 2, context: 1024}"""


@contextmanager
def serving(folder):
    """A server in a process group of its own, as a shell makes it. Gives the process and the URL of
    completions. Whatever the server leaves is killed."""
    config = folder / "headway.yaml"
    config.write_text(CONFIG)
    flags = ["--config", str(config), "--port", "0"]
    command = [sys.executable, "-m", "headway", "serve", *flags]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            said = []
            while not (found := re.search(r"http://\S+/v1", "".join(said))):
                said.append(process.stdout.readline())
                assert said[-1], said
            yield process, f"{found[0]}/completions"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_lets_running_requests_finish(tmp_path, number):
    with serving(tmp_path) as (process, url):
        with httpx2.stream("POST", url, json=ASKED, timeout=120) as answer:
            lines = answer.iter_lines()
            next(lines)
            os.killpg(process.pid, number)
            *_, usage, last = [line for line in lines if line]
        assert last == "data: [DONE]"
        counted = json.loads(usage.removeprefix("data: "))["usage"]
        assert counted["completion_tokens"] == TOKENS
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "draining: 1 requests" in out


def workers(group):
    """The processes of a group that vLLM calls its workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_ours = os.getpgid(int(folder.name)) == group
            if is_ours and b"VLLM::Worker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def test_the_engine_restarts_when_a_worker_dies_while_no_request_runs(tmp_path):
    asked = {"prompt": "x", "max_tokens": 3, "ignore_eos": True}
    with serving(tmp_path) as (process, url):
        (worker,) = workers(process.pid)
        os.kill(worker, signal.SIGKILL)
        line = ""
        while "a worker of vLLM has died" not in line:
            line = process.stdout.readline()
            assert line, "the server has ended"
        until = time.monotonic() + 180
        while (answer := httpx2.post(url, json=asked, timeout=120)).status_code == 503:
            assert time.monotonic() < until, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 3
        assert workers(process.pid) != [worker]


def test_a_server_that_fails_after_the_model_is_loaded_ends(tmp_path):
    """vLLM's workers run by then."""
    model = tmp_path / "model"
    copytree(EMBEDDED, model)
    (model / "tokenizer.json").write_text("{}")
    engine = "engine: {executor: vllm, vllm: {enforce_eager: true}, slots: 2, context: 1024}"
    config = tmp_path / "headway.yaml"
    config.write_text(f"models: [{{path: {model}}}]\n{engine}")
    command = [sys.executable, "-m", "headway", "serve", "--config", str(config), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode != 0 and "tokenizer" in done.stdout + done.stderr
