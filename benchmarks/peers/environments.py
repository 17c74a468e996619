"""The peers' environments: one for each, made once, under `.build/peers/`.

Each peer is installed as its makers publish it. llama.cpp is compiled for the processor at hand,
and never taken from pip's cache, where a build for another processor may lie.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

from headway.executor.torch.config.processor import cpu_flags

SECONDS = 3_600.0  # that one command of pip may take


class MissingError(Exception):
    """A peer cannot be had or has failed; the message says why."""


@dataclass(frozen=True, slots=True)
class Kit:
    """What pip is told."""

    installs: Sequence[Sequence[str]]  # one command each
    removes: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    native: bool = False  # compiled here, for this processor


def _torch() -> list[str]:
    """The same torch that headway has: its wheel is often at hand."""
    from importlib.metadata import version

    return [*os.environ.get("TORCH_FLAGS", "").split(), f"torch=={version('torch')}"]


def kits() -> dict[str, Kit]:
    """By name of the environment. openvino-export is only for making OpenVINO's files."""
    llama = ["--no-cache-dir", "--no-binary", "llama-cpp-python", "llama-cpp-python"]
    exporters = ["optimum-intel", "nncf", "openvino", "openvino-tokenizers", *_torch()]
    return {
        "openvino": Kit([["openvino-genai", "numpy"]]),
        "openvino-export": Kit([_torch(), exporters], ["torchvision"]),
        "llama-cpp": Kit(
            [[*llama, "gguf", "numpy"]],
            variables={"CMAKE_ARGS": "-DGGML_NATIVE=ON"},
            native=True,
        ),
    }


def environment(root: Path, name: str, kit: Kit) -> Path:
    """The Python of an environment, which is made if it does not exist. Raises MissingError."""
    folder = root / name
    python, mark = folder / "bin" / "python", folder / "ready"
    wanted = "\n".join([*map(" ".join, kit.installs), *(sorted(cpu_flags()) if kit.native else ())])
    if mark.is_file() and mark.read_text() == wanted:
        return python
    print(f"making the environment {name} ...", flush=True)
    rmtree(folder, ignore_errors=True)
    # Our own pip installs into it: unpacking another one would take seconds.
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], {})
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    for words in kit.installs:
        _run([*pip, "install", "--quiet", *words], kit.variables)
    if kit.removes:
        _run([*pip, "uninstall", "--quiet", "--yes", *kit.removes], {})
    mark.write_text(wanted)
    return python


def run_module(python: Path, module: str, words: Sequence[str]) -> None:
    """One of the drivers' modules, to its end. Raises MissingError."""
    _run([str(python), "-m", f"benchmarks.peers.drivers.{module}", *words], offline())


def offline() -> dict[str, str]:
    """Environment for processes that load a model: our code is found, and no hub is asked."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src")])
    return {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def last_words(text: str) -> str:
    """The line of an error's output that names the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "rror" in line]
    return (named or lines or ["it said nothing"])[-1][:200]


def _run(command: Sequence[str], variables: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, **variables},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(str(error)) from error
    if done.returncode:
        raise MissingError(last_words(done.stderr or done.stdout))
