"""The engines in each precision: their files, their environments, and one run of one of them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import (
    MissingError,
    environment,
    kits,
    last_words,
    offline,
    run_module,
)
from benchmarks.peers.model import warm, write_model
from benchmarks.peers.workloads import SINGLE, Workload, warm_up
from headway.costing.machine import Neighbours
from headway.executor.torch.config.processor import cpu_flags

OURS = "headway"
PRECISIONS = ("16bit", "int8")
ENGINES = (OURS, "openvino", "llama-cpp", "vllm")


@dataclass(slots=True)
class Contestant:
    """One engine in one precision, and what was measured of it."""

    engine: str
    precision: str
    python: Path = Path()
    model: Path = Path()
    missing: str = ""  # why it is not measured
    runs: list[dict[str, Any]] = field(default_factory=list)  # one a process, as its driver writes

    @property
    def name(self) -> str:
        return f"{self.engine} {self.precision}"

    @property
    def turns(self) -> list[dict[str, float]]:
        """Each time that it answered one stream, in its turn."""
        return [turn for run in self.runs for turn in run.get("turns", ())]

    def rates(self, workload: str) -> list[float]:
        """Output tokens a second, of each turn or round that has them."""
        found = [run["workloads"].get(workload) for run in self.runs]
        found = self.turns if workload == SINGLE else found
        return [each["tokens"] / each["seconds"] for each in found if each]


@dataclass(frozen=True, slots=True)
class Stage:
    """Where environments, models and logs lie, and what every run is told."""

    root: Path
    threads: int
    limit: float  # seconds that one run may take
    vllm: Path  # vLLM's environment

    def contestants(self, engines: Sequence[str]) -> list[Contestant]:
        """All contestants; those that cannot be had have the reason."""
        found = []
        for engine in engines:
            for precision in PRECISIONS:
                each = Contestant(engine, precision)
                try:
                    each.python, each.model = self._prepared(engine, precision)
                except MissingError as error:
                    each.missing = str(error)
                found.append(each)
        return found

    def _prepared(self, engine: str, precision: str) -> tuple[Path, Path]:
        """The engine's Python, and the model in its own format. Raises MissingError."""
        models = self.root / "models"
        checkpoint = write_model(models / "checkpoint")
        if engine == OURS:
            return Path(sys.executable), checkpoint
        if engine == "vllm":
            if precision == "int8":
                raise MissingError("vLLM would need a checkpoint quantised in a format of its own")
            if not (self.vllm / "bin" / "python").is_file():
                raise MissingError("its environment is not there: make vllm, or --vllm FOLDER")
            return self.vllm / "bin" / "python", checkpoint
        python = environment(self.root, engine, kits()[engine])
        if engine == "llama-cpp":
            word = "q8_0" if precision == "int8" else _half()
            file = models / f"{word}.gguf"
            if not file.is_file():
                run_module(python, "to_gguf", [str(checkpoint), str(file), word])
            return python, file
        return python, self._ir(models, checkpoint, precision)

    def _ir(self, models: Path, checkpoint: Path, precision: str) -> Path:
        """OpenVINO's files. Those in int8 are made from the others."""
        plain, small = models / "ir-fp16", models / "ir-int8"
        wanted = small if precision == "int8" else plain
        if not wanted.is_dir():
            name = "openvino-export"
            exporter = environment(self.root, name, kits()[name])
            for source, out, word in ((checkpoint, plain, "fp16"), (plain, small, "int8")):
                if not out.is_dir():
                    shutil.rmtree(f"{out}.part", ignore_errors=True)
                    run_module(exporter, "to_ir", [str(source), str(out), word])
        return wanted

    def run(self, each: Contestant, workloads: Sequence[Workload], number: int) -> None:
        """One process: load, warm up, all workloads. What it has measured is added to its runs.

        Raises MissingError if it has measured nothing.
        """
        out = self.job(each, workloads, number)
        others = Neighbours()
        why = self._driven(each, out)
        each.runs.append(written(out, why) | {"others": others.cores() / (os.cpu_count() or 1)})

    def job(
        self, each: Contestant, workloads: Sequence[Workload], number: int, turns: bool = False
    ) -> Path:
        """Write what its driver is told, with its files in memory. Returns where it is to write."""
        warm(each.model.parent if each.model.is_file() else each.model)
        stem = f"{each.engine}-{each.precision}-{'turns' if turns else number}"
        out = self.root / "runs" / f"{stem}.json"
        out.parent.mkdir(exist_ok=True)
        out.unlink(missing_ok=True)
        about = {
            "model": str(each.model),
            "precision": each.precision,
            "threads": self.threads,
            "warm_up": warm_up(number).to_json(),
            "workloads": [workload.to_json() for workload in workloads],
            "turns": turns,
        }
        out.with_suffix(".job").write_text(json.dumps(about | {"began": time.time()}))
        return out

    def start(self, each: Contestant, out: Path, **streams: Any) -> "subprocess.Popen[str]":
        """Its driver, in a session of its own."""
        module = f"benchmarks.peers.drivers.{each.engine.replace('-', '_')}"
        command = [str(each.python), "-m", module, str(out.with_suffix(".job")), str(out)]
        variables = {**os.environ, **offline(), "OMP_NUM_THREADS": str(self.threads)}
        return subprocess.Popen(
            command, env=variables, start_new_session=True, text=True, **streams
        )

    def _driven(self, each: Contestant, out: Path) -> str:
        """Run the driver. Returns why it did not end well; empty: it did."""
        with out.with_suffix(".log").open("w+") as log:
            process = self.start(each, out, stdout=log, stderr=subprocess.STDOUT)
            try:
                status = process.wait(self.limit)
            except subprocess.TimeoutExpired:
                return f"it took more than {self.limit:.0f} s"
            finally:
                end(process)
            log.seek(0)
            return why_it_ended(status, log.read())


def why_it_ended(status: int, said: str) -> str:
    """Why the driver failed; empty: it ended well."""
    if status < 0:
        said += f"\nit was ended by {signal.Signals(-status).name}"
    return last_words(said) if status else ""


def written(out: Path, why: str) -> dict[str, Any]:
    """What its driver has written. Raises MissingError if that is nothing."""
    if not out.is_file():
        raise MissingError(why or "it has measured nothing")
    found: dict[str, Any] = json.loads(out.read_text())
    return found | {"ended": why}


def _half() -> str:
    """llama.cpp's format of 16 bits that the processor multiplies fastest."""
    return "bf16" if {"avx512_bf16", "amx_bf16"} & cpu_flags() else "f16"


def end(process: "subprocess.Popen[str]") -> None:
    """End it and the workers that it has started: they are in a session of their own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
