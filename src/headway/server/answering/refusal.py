"""Refusal: a request refused before it became a call, as metrics and traces are told of it."""

from dataclasses import dataclass

from headway.server.answering.arrival import Arrival
from headway.server.protocol.problem import Problem


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refused request, and the problem it was answered with."""

    problem: Problem
    operation: str  # chat, text_completion, or another path's name
    arrival: Arrival
    lane: str = ""  # empty: not known yet
    count: int = 1  # engine requests it would have become
    own_start: bool = False  # its client set the time by which it must start (Deadlines)
