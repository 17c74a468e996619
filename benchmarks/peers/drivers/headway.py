"""headway's LLM on a CPU."""

import inspect
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from benchmarks.peers.drivers.job import Job, drive
from benchmarks.peers.workloads import CONTEXT, Request, Workload
from headway import LLM, Options

SLOTS = 32


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

    def run(self, workload: Workload) -> dict[int, list[int]]:
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
