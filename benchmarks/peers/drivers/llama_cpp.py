"""llama.cpp through llama-cpp-python's bindings: continuous batching over llama_decode.

llama.cpp's own servers batch in C++. Here a step has the next token of every sequence that runs and
prompts up to STEP tokens in all; each sequence has KV memory of its own. A prefix that all requests
of a workload share is computed once, kept, and copied to each of them.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import llama_cpp
import numpy as np

from benchmarks.peers.drivers.job import Job, Stepped, drive
from benchmarks.peers.workloads import CONTEXT, Request, Workload

SLOTS, STEP = 32, 512
KEPT = SLOTS  # the sequence that holds the shared prefix
LEAST = 64  # tokens of a prefix that is worth a copy


@dataclass(slots=True)
class Running:
    """A sequence: the tokens that the model has not seen, and how many it has."""

    number: int
    slot: int
    pending: list[int]
    left: int
    seen: int = 0
    answer: list[int] = field(default_factory=list)


class Llama(Stepped):
    def __init__(self, job: Job) -> None:
        llama_cpp.llama_backend_init()
        quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
        self.quiet = quiet  # it must outlive the library's use of it
        loading = llama_cpp.llama_model_default_params()
        model = llama_cpp.llama_model_load_from_file(job.model.encode(), loading)
        settings = llama_cpp.llama_context_default_params()
        settings.n_seq_max, settings.kv_unified = SLOTS + 1, False
        settings.n_ctx = (SLOTS + 1) * CONTEXT
        settings.n_batch = settings.n_ubatch = STEP
        settings.n_threads = settings.n_threads_batch = job.threads
        self.context = llama_cpp.llama_init_from_model(model, settings)
        if not self.context:
            raise SystemExit("llama.cpp has made no context")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self.batch = llama_cpp.llama_batch_init(STEP, 0, 1)
        self.running: list[Running] = []
        self.prefix: tuple[int, ...] = ()
        kind = "8-bit blocks (Q8_0)" if job.precision == "int8" else job.model.split(".")[-2][-4:]
        words = {"bf16": "bfloat16", "/f16": "float16"}.get(kind, kind)
        kernel = llama_cpp.llama_print_system_info().decode().replace(" = 1", "")
        wide = [each for each in ("AVX2", "AVX512", "AVX512_BF16", "AMX_INT8") if each in kernel]
        self.about = {
            "version": version("llama-cpp-python"),
            "computes": f"{words}, KV float16; built for {', '.join(wide)}",
        }

    def run(self, workload: Workload) -> dict[int, list[int]]:
        shared = workload.shared
        self._keep(workload.requests[0].prompt[:shared] if shared >= LEAST else ())
        return Stepped.run(self, workload)

    def _keep(self, prefix: tuple[int, ...]) -> None:
        """Compute the prefix, unless it is the one that is kept."""
        if prefix == self.prefix:
            return
        llama_cpp.llama_memory_seq_rm(self.memory, KEPT, -1, -1)
        for begin in range(0, len(prefix), STEP):
            rows = [
                (token, begin + i, KEPT, False) for i, token in enumerate(prefix[begin:][:STEP])
            ]
            self._decode(rows)
        self.prefix = prefix

    def add(self, number: int, request: Request) -> None:
        slot = min(set(range(SLOTS)) - {each.slot for each in self.running})
        seen = len(self.prefix)
        if seen:
            llama_cpp.llama_memory_seq_cp(self.memory, KEPT, slot, -1, -1)
        pending = list(request.prompt[seen:])
        self.running.append(Running(number, slot, pending, request.answer, seen))

    def step(self) -> dict[int, list[int]]:
        rows: list[tuple[int, int, int, bool]] = []
        last: list[tuple[Running, int]] = []  # the row whose logits give the next token
        for each in sorted(self.running, key=lambda each: len(each.pending) > 1):
            taken, each.pending = (
                each.pending[: STEP - len(rows)],
                each.pending[STEP - len(rows) :],
            )
            for at, token in enumerate(taken):
                wanted = not each.pending and at == len(taken) - 1
                rows.append((token, each.seen + at, each.slot, wanted))
                if wanted:
                    last.append((each, len(rows) - 1))
            each.seen += len(taken)
        self._decode(rows)
        for each, row in last:
            logits = llama_cpp.llama_get_logits_ith(self.context, row)
            token = int(np.ctypeslib.as_array(logits, (self.vocab,)).argmax())
            each.answer.append(token)
            each.pending = [token]
        return self._ended()

    def _ended(self) -> dict[int, list[int]]:
        ended = [each for each in self.running if len(each.answer) == each.left]
        for each in ended:
            llama_cpp.llama_memory_seq_rm(self.memory, each.slot, -1, -1)
            self.running.remove(each)
        return {each.number: each.answer for each in ended}

    def _decode(self, rows: Sequence[tuple[int, int, int, bool]]) -> None:
        """Each row: a token, its position, its sequence, and whether its logits are wanted."""
        batch: Any = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, slot, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = slot, wanted
        if status := llama_cpp.llama_decode(self.context, batch):
            raise SystemExit(f"llama_decode failed: {status}")


if __name__ == "__main__":
    drive(Llama)
