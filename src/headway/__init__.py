"""headway: serve models under a latency budget per endpoint, and measure what batching costs.

LLM, Options, Completion, Delta: a model in your process. batch, Batcher, DONE: any function, its
calls batched. Pipeline, stage, each: functions and models in a row. headway.routing: which of
several models or functions answers. HeadwayError: the base of headway's errors (headway.errors).

Each name is imported on first use, so `headway.core` needs only the standard library.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.batching.batcher import Batcher
    from headway.batching.decorator import batch
    from headway.batching.stream import DONE
    from headway.errors import HeadwayError
    from headway.llm.answer import Completion, Delta
    from headway.llm.llm import LLM
    from headway.llm.options import Options
    from headway.pipelines.graph import each, stage
    from headway.pipelines.pipeline import Pipeline

__version__ = "0.1.0"
__all__ = [
    "DONE",
    "LLM",
    "Batcher",
    "Completion",
    "Delta",
    "HeadwayError",
    "Options",
    "Pipeline",
    "batch",
    "each",
    "stage",
]

_HOME = {  # where each name lives
    "DONE": "headway.batching.stream",
    "LLM": "headway.llm.llm",
    "Batcher": "headway.batching.batcher",
    "Completion": "headway.llm.answer",
    "Delta": "headway.llm.answer",
    "HeadwayError": "headway.errors",
    "Options": "headway.llm.options",
    "Pipeline": "headway.pipelines.pipeline",
    "batch": "headway.batching.decorator",
    "each": "headway.pipelines.graph",
    "stage": "headway.pipelines.graph",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
