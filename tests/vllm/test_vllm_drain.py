"""A server answers what it has begun when Ctrl-C reaches all its processes, vLLM's workers too."""

import json
import os
import re
import signal
import subprocess
import sys
from shutil import copytree

import httpx2
import pytest

from headway.models import EMBEDDED

TOKENS = 960  # so many that the answer outlasts the signal, also on a busy machine
ASKED = {"prompt": "x", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
ASKED["stream_options"] = {"include_usage": True}
CONFIG = """engine: {executor: vllm, vllm: {enforce_eager: true}, slots: 2, context: 1024}"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_lets_running_requests_finish(tmp_path, number):
    config = tmp_path / "headway.yaml"
    config.write_text(CONFIG)
    flags = ["--config", str(config), "--port", "0"]
    command = [sys.executable, "-m", "headway.cli", "serve", *flags]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a group of its own, as a shell makes it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            said = []
            while not (found := re.search(r"http://\S+/v1", "".join(said))):
                said.append(process.stdout.readline())
                assert said[-1], said
            url = f"{found[0]}/completions"
            with httpx2.stream("POST", url, json=ASKED, timeout=120) as answer:
                lines = answer.iter_lines()
                next(lines)
                os.killpg(process.pid, number)
                *_, usage, last = [line for line in lines if line]
            assert last == "data: [DONE]"
            counted = json.loads(usage.removeprefix("data: "))["usage"]
            assert counted["completion_tokens"] == TOKENS
            out, _ = process.communicate(timeout=60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0 and "draining: 1 requests" in out


def test_a_server_that_fails_after_the_model_is_loaded_ends(tmp_path):
    """vLLM's workers are there by then."""
    model = tmp_path / "model"
    copytree(EMBEDDED, model)
    (model / "tokenizer.json").write_text("{}")
    engine = "engine: {executor: vllm, vllm: {enforce_eager: true}, slots: 2, context: 1024}"
    config = tmp_path / "headway.yaml"
    config.write_text(f"models: [{{path: {model}}}]\n{engine}")
    command = [sys.executable, "-m", "headway.cli", "serve", "--config", str(config), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode != 0 and "tokenizer" in done.stdout + done.stderr
