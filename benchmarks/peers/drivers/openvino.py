"""OpenVINO GenAI's continuous batching, with its defaults, prefix caching on."""

from importlib.metadata import version

import numpy as np
import openvino
from openvino_genai import ContinuousBatchingPipeline, GenerationConfig, SchedulerConfig
from openvino_genai.py_openvino_genai import GenerationHandle, GenerationStatus

from benchmarks.peers.drivers.job import Job, Stepped, drive
from benchmarks.peers.workloads import Request

CACHE_GB = 1


class OpenVino(Stepped):
    def __init__(self, job: Job) -> None:
        scheduling = SchedulerConfig()
        scheduling.cache_size = CACHE_GB
        scheduling.enable_prefix_caching = True
        settings = {"INFERENCE_NUM_THREADS": job.threads}
        self.pipe = ContinuousBatchingPipeline(job.model, scheduling, "CPU", settings)
        self.running: dict[int, GenerationHandle] = {}
        self.asked = 0
        core, names = openvino.Core(), ("INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION")
        kinds = [str(core.get_property("CPU", name)).split("'")[1] for name in names]
        weights = "int8 weights, " if job.precision == "int8" else ""
        self.about = {
            "version": version("openvino-genai"),
            "computes": f"{weights}{kinds[0]}, KV {kinds[1]}",
        }

    def add(self, number: int, request: Request) -> None:
        config = GenerationConfig()
        config.max_new_tokens, config.ignore_eos = request.answer, True
        config.set_eos_token_id(0)  # which ends nothing; the IR says none, and none is refused
        ids = openvino.Tensor(np.array([request.prompt], np.int64))
        self.asked += 1  # an id of its own for each request
        self.running[number] = self.pipe.add_request(self.asked, ids, config)

    def step(self) -> dict[int, list[int]]:
        self.pipe.step()
        ended = {
            number: list(handle.read_all()[0].generated_ids)
            for number, handle in self.running.items()
            if handle.get_status() is not None and handle.get_status() != GenerationStatus.RUNNING
        }
        for number in ended:
            del self.running[number]
        return ended


if __name__ == "__main__":
    drive(OpenVino)
