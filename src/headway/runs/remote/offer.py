"""A request as a client makes it (Offer)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.request import NEVER, Request
from headway.runs.remote.session import Turn


@dataclass(frozen=True, slots=True)
class Offer:
    """A request, and how its caller behaves."""

    request: Request  # `arrived` is counted from the beginning of the run
    headers: Mapping[str, str] = field(default_factory=dict)  # besides those of every request
    leaves_after: int = NEVER  # pieces of text; 0: as soon as it has asked
    turns: tuple[Turn, ...] = ()  # that follow in the same session
