"""headway: serve models under a latency budget per endpoint, and measure what batching costs.

`headway.core` needs the standard library alone, so nothing here is imported before it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.answer import Completion, Delta, Options
    from headway.errors import HeadwayError
    from headway.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "Completion", "Delta", "HeadwayError", "Options"]

_HOME = {"LLM": "headway.llm", "HeadwayError": "headway.errors"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    return getattr(import_module(_HOME.get(name, "headway.answer")), name)
