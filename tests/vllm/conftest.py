"""vLLM's engines, each loaded once. These tests run where vLLM is installed: `make test-vllm`."""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from headway.runs.shared_executor import SharedExecutor

if find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]

SHAPES = {
    "llama": ("llama-mqa-tied", {"num_key_value_heads": 2, "tie_word_embeddings": False}),
    "qwen2": ("qwen2-bias-tied", {}),
}
# vLLM's CPU kernels take heads of 32; the context holds six of its blocks.
SIZES = {"hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": 192}
CONTEXT = 192


@dataclass(frozen=True)
class Pair:
    """The same checkpoint in headway's executor and in vLLM's workers, both in float32."""

    golden: Any  # of transformers
    torch: SharedExecutor
    vllm: SharedExecutor
    loaded: Any  # vLLM's
    block_size: int


def load_both(folder: Path, context: int) -> tuple[Any, Any]:
    from headway.executor.load import BLOCK_SIZES, load
    from headway.executor.torch.memory.memory_plan import Limits

    limits = Limits(6, 0, context, BLOCK_SIZES["vllm"])
    theirs = load("vllm", folder, replace(limits, step_tokens=512), "float32", "", EAGER)
    return load("torch", folder, limits, "float32"), theirs


EAGER = {"enforce_eager": True}


@pytest.fixture(scope="session", params=SHAPES)
def pair(request, tmp_path_factory):
    from tests.executor.torch.tiny_checkpoints import make

    shape, rest = SHAPES[request.param]
    golden = make(tmp_path_factory.mktemp(request.param), shape, **(SIZES | rest))
    ours, theirs = load_both(golden.folder, CONTEXT)
    yield Pair(golden, SharedExecutor(ours.executor), SharedExecutor(theirs.executor), theirs, 32)
    theirs.executor.close()


@pytest.fixture(scope="session")
def embedded():
    """The embedded model in headway's executor and in vLLM's workers, both in float32."""
    from headway.models import EMBEDDED

    both = dict(zip(("torch", "vllm"), load_both(EMBEDDED, 512), strict=True))
    yield {name: replace(each, executor=Kept(each.executor)) for name, each in both.items()}
    both["vllm"].executor.close()


@pytest.fixture
def llm(embedded, monkeypatch):
    """Makes an LLM on one of the two executors. The next LLM on that executor closes it."""
    from headway import LLM

    made = dict[str, LLM]()

    def make(executor: str, **options: Any) -> LLM:
        monkeypatch.setattr("headway.llm.llm.load", lambda name, *rest: embedded[name])
        if executor in made:
            made[executor].close()
        embedded[executor].executor.hand_over()
        made[executor] = LLM(executor=executor, **({"slots": 6, "context": 512} | options))
        return made[executor]

    yield make
    for each in made.values():
        each.close()


class Kept(SharedExecutor):
    """An executor that outlives the LLMs that use it."""

    def close(self) -> None:
        pass
