"""headway's LLM on a CPU."""

import inspect
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from benchmarks.peers.drivers.job import Job, drive
from benchmarks.peers.workloads import CONTEXT, Request, Workload
from headway import LLM, Options

SLOTS = 32


class Computing:
    """Seconds in which the model computes: its layers, its head and the likeliest tokens. All other
    time of a workload is the host's."""

    def __init__(self, model: Any) -> None:
        self.seconds = 0.0
        for name in ("forward", "logits", "likeliest"):
            setattr(model, name, self._timed(getattr(model, name)))

    def _timed(self, part: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            found = part(*arguments)
            self.seconds += time.perf_counter() - began
            return found

        return timed


class Headway:
    """Up to its slots all requests go into one call; fewer outstanding are that many threads."""

    def __init__(self, job: Job) -> None:
        more: dict[str, Any] = {}
        if job.precision == "int8":
            if "quantize" not in inspect.signature(LLM).parameters:
                raise SystemExit("LLM has no quantize=")
            more["quantize"] = "int8"
        self.llm = LLM(job.model, dtype="bfloat16", slots=SLOTS, context=CONTEXT, **more)
        words = "int8 weights, " if more else ""
        self.about = {"version": version("headway"), "computes": f"{words}bfloat16"}
        self.computing = Computing(self.llm._executor.model)  # type: ignore[attr-defined]

    def run(self, workload: Workload) -> dict[int, list[int]]:
        began, computed = time.perf_counter(), self.computing.seconds
        found = self._run(workload)
        taken, computed = time.perf_counter() - began, self.computing.seconds - computed
        self.about[f"host {workload.name}"] = str(1 - computed / taken)
        return found

    def _run(self, workload: Workload) -> dict[int, list[int]]:
        requests = workload.requests
        if workload.most < len(requests):
            with ThreadPoolExecutor(workload.most) as threads:
                found = list(threads.map(lambda request: self._answers(request)[0], requests))
        else:
            found = self._answers(*requests)
        return dict(enumerate(found))

    def _answers(self, *requests: Request) -> list[list[int]]:
        options = [Options(max_tokens=each.answer, ignore_eos=True) for each in requests]
        prompts = [each.prompt for each in requests]
        done = self.llm.generate(prompts, options, progress=False, errors="raise")
        return [list(each.tokens) for each in done]


def main() -> None:
    import torch

    def load(job: Job) -> Headway:
        torch.set_num_threads(job.threads)
        return Headway(job)

    drive(load)


if __name__ == "__main__":
    main()
