"""LLM(executor="vllm") in a process of its own, as in a user's script, until its worker dies."""

import subprocess
import sys
import textwrap

SCRIPT = """
import os, signal
from headway import LLM, Options
from headway.errors import EngineDownError, HeadwayError

def main():
    for wrong in ({"tensor_paralel_size": 2}, {"block_size": 16}, {"async_scheduling": True}):
        try:
            LLM(executor="vllm", vllm=wrong)
        except HeadwayError as error:
            print("refused:", error)
    with LLM(executor="vllm", dtype="float32", slots=2, vllm={"enforce_eager": True}) as llm:
        print("blocks of", llm.memory.block_size, "context", llm.memory.context)
        (answer,) = llm.generate("The json module", Options(max_tokens=6, ignore_eos=True))
        print("tokens", len(answer.tokens))
        (worker,) = llm._executor._core.model_executor.workers
        os.kill(worker.proc.pid, signal.SIGKILL)
        worker.proc.join()
        try:
            (answer,) = llm.generate("The json module", Options(max_tokens=6))
            print(type(answer.error).__name__, answer.error)
        except EngineDownError as error:
            print("EngineDownError", error)
    print("closed")

if __name__ == "__main__":
    main()
"""


def test_a_script_gets_refusals_answers_and_the_error_of_a_dead_worker(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    said = done.stdout.splitlines()
    assert [line for line in said if line.startswith("refused:")] == [
        "refused: vLLM has no option 'tensor_paralel_size'; did you mean tensor_parallel_size?",
        "refused: vLLM's block_size follows from block_size: set that",
        "refused: vLLM's async_scheduling cannot be set: headway decides it, or lacks it",
    ]
    assert "blocks of 32 context 2048" in said and "tokens 6" in said, done.stderr
    assert [line for line in said if line.startswith("EngineDownError")], said
    assert "a worker of vLLM has died" in done.stdout
    assert said[-1] == "closed" and done.returncode == 0
