"""From the README to a streamed answer: with curl, and with the openai package."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text().replace("\\\n", "")
CURL = re.search(r"^    (curl .*)$", README, re.MULTILINE)[1]
EXAMPLE = re.search(r"^    \.venv/bin/python (examples/.*?)  +#", README, re.MULTILINE)[1]


@pytest.fixture(scope="module")
def port():
    """A server as `make serve` starts it, on a port of its own."""
    assert "serve: .venv/ready" in (ROOT / "Makefile").read_text()
    command = [sys.executable, "-m", "headway", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        said = next(found for line in process.stdout if (found := re.search(r":(\d+)/v1", line)))
        yield said[1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def ran(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl here")
def test_the_quick_start_works_with_curl(port):
    whole = CURL.replace('"stream"', '"ignore_eos": true, "stream"')  # the answer is sampled
    said = ran(shlex.split(whole.replace(":8000", f":{port}")))
    *chunks, done = [line.removeprefix("data: ") for line in said.splitlines() if line]
    assert done == "[DONE]" and len(chunks) > 5, "it came in pieces"
    assert "".join(json.loads(each)["choices"][0]["text"] for each in chunks).strip()


def test_the_quick_start_works_with_the_openai_package(port):
    pytest.importorskip("openai")
    assert len(ran([sys.executable, *shlex.split(EXAMPLE), port]).strip()) > 20
