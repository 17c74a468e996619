"""headway: serve models under a latency budget per endpoint, and measure what batching costs.

Names are imported when they are first used: `headway.core` needs the standard library alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.answer import Completion, Delta
    from headway.errors import HeadwayError
    from headway.llm import LLM
    from headway.options import Options

__version__ = "0.1.0"
__all__ = ["LLM", "Completion", "Delta", "HeadwayError", "Options"]

_HOME = {  # where each name lives
    "LLM": "headway.llm",
    "Completion": "headway.answer",
    "Delta": "headway.answer",
    "HeadwayError": "headway.errors",
    "Options": "headway.options",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
