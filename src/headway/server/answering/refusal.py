"""A request that was refused before it was a call: what metrics and traces are told of it."""

from dataclasses import dataclass

from headway.server.answering.arrival import Arrival
from headway.server.protocol.problem import Problem


@dataclass(frozen=True, slots=True)
class Refusal:
    """Who was refused, and why."""

    problem: Problem
    operation: str  # chat, text_completion, or another path's name
    arrival: Arrival
    lane: str = ""  # empty: not known yet
    count: int = 1  # requests to the engine that it would have been
