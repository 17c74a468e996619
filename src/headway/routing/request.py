"""What a route is asked (RouteRequest), and what it answers (RouteAnswer)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.llm.options import Options


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """One request, before a route has chosen a target for it."""

    input: Any  # for a model: a text, token ids or a chat's messages; for a function: an item
    options: Options = Options()  # for models; functions have none
    lane: str = ""  # for rules, for batchers that have lanes, and for the decision's row
    tenant: str = ""  # for rules and the decision's row
    metadata: Mapping[str, str] = field(default_factory=dict)  # for rules
    timeout: float = 0.0  # seconds, from when the outermost route is asked; 0: no limit
    # The limit as a time, in nanoseconds of the event loop's clock, which is that of
    # time.monotonic_ns(). A route sets it for its targets. The earlier of both limits counts.
    deadline: int = NEVER
    due: int = NEVER  # when it should end, on the same clock; a model schedules it by this
    id: str = ""  # empty: the route gives it one. Its attempts have the same id plus a number
    reason: str = ""  # why this target is asked, in words; routes set it for their targets

    def __post_init__(self) -> None:
        if not 0 <= self.timeout < 1e9:
            raise SettingError(f"a timeout of {self.timeout} seconds cannot be kept")

    @property
    def length(self) -> int:
        """The number of characters of a text or a chat's messages, or of token ids. Any other input
        has its len(), or 1 if it has none."""
        if isinstance(self.input, list | tuple) and self.input and isinstance(self.input[0], dict):
            chat = [each for each in self.input if isinstance(each, dict)]
            return sum([len(str(each.get("content", ""))) for each in chat])
        try:
            return len(self.input)
        except TypeError:  # an array without dimensions has a __len__, too
            return 1


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    """The answer of a target, or of the target that a route has chosen."""

    value: Any  # a model's Completion, a function's result, or a remote server's JSON
    text: str = ""  # of a model
    # Mean natural log-probability of the answer's tokens; nan: not known.
    logprob: float = nan
    tokens: int = 0  # generated
    target: str = ""  # name of the target that answered; of nested routes, the innermost target
    # False: a cascade rejected it but got nothing better, or an ensemble had no time to choose.
    accepted: bool = True
    id: str = ""  # of the request; its DecisionRow has the same id
