"""A request that was refused before it was a call: what metrics and traces are told of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.server.config.tenant import Tenant
from headway.server.protocol.problem import Problem


@dataclass(frozen=True, slots=True)
class Away:
    """Turned away, and why."""

    problem: Problem
    operation: str  # chat, text_completion, or another path's name
    tenant: Tenant
    arrived: int  # nanoseconds
    lane: str = ""  # empty: it was not known yet what was asked
    count: int = 1  # requests, which a call's prompts and choices are
    headers: Mapping[str, str] = field(default_factory=dict)  # as they came
