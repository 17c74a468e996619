"""Tensor parallelism: two workers of vLLM compute one model, each with half of every layer."""

import os
import signal
from dataclasses import replace

import pytest
from vllm.envs import disable_envs_cache

from headway.errors import EngineDownError, EngineError
from headway.executor.load import BLOCK_SIZES, load
from headway.executor.torch.memory.memory_plan import Limits
from headway.runs.shared_executor import SharedExecutor
from tests.executor.torch.tiny_checkpoints import make
from tests.vllm.conftest import CONTEXT, EAGER, SHAPES, SIZES
from tests.vllm.test_vllm_golden import ASKED, STRATEGIES, serve


def test_two_ranks_answer_as_one_and_the_death_of_one_is_an_engine_error(tmp_path, monkeypatch):
    # By itself vLLM wants a NUMA node for each rank. Both may have the same core.
    first, *_, last = 2 * sorted(os.sched_getaffinity(0))
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", f"{first}|{last}")
    disable_envs_cache()  # an engine that was loaded in this process before has filled it
    shape, rest = SHAPES["llama"]
    golden = make(tmp_path, shape, **(SIZES | rest))
    limits = replace(Limits(6, 0, CONTEXT, BLOCK_SIZES["vllm"]), step_tokens=512)
    options = EAGER | {"tensor_parallel_size": 2}
    loaded = load("vllm", golden.folder, limits, "float32", "", options)
    try:
        assert loaded.plan.ranks == 2 and "among 2 ranks" in str(loaded.plan)
        assert loaded.plan.per_block == 2 * 2 * 2 * 32 * 32 * 4, "layers, k and v, heads, cells"
        wanted = [golden.generate(*asked) for asked in ASKED]
        executor = SharedExecutor(loaded.executor)
        for name in ("chunks-of-5", "chunks-of-100"):
            scheduler, said = serve(executor, STRATEGIES[name])
            assert said == wanted
            assert sum(row.preemptions for row in scheduler.ledger.requests) > 0
        with (
            monkeypatch.context() as patched,
            pytest.raises(EngineError, match="KeyError: 'nobody'"),
        ):
            build = loaded.executor._builder.build

            def broken(batch, finished):
                step = build(batch, finished)
                if batch.step == 1:  # both workers look it up, and do not find it
                    step.notes.prompts["nobody"] = 1
                return step

            patched.setattr(loaded.executor._builder, "build", broken)
            serve(executor, STRATEGIES["one-by-one"])
        executor.hand_over()
        assert serve(executor, STRATEGIES["chunks-of-100"])[1] == wanted, "it costs no other step"
        workers = loaded.executor._core.model_executor.workers
        assert len(workers) == 2
        os.kill(workers[1].proc.pid, signal.SIGKILL)
        workers[1].proc.join()
        with pytest.raises(EngineDownError, match="a worker of vLLM has died"):
            serve(executor, STRATEGIES["chunks-of-5"])
    finally:
        loaded.executor.close()
    for worker in workers:
        worker.proc.join(30)
        assert worker.proc.exitcode is not None
