"""A request as a client makes it (Offer)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.request import NEVER, Request
from headway.runs.remote.session import Turn


@dataclass(frozen=True, slots=True)
class Offer:
    """A request, and how its caller behaves."""

    request: Request  # `arrived` is counted from the beginning of the run
    headers: Mapping[str, str] = field(default_factory=dict)  # added to those of every request
    leaves_after: int = NEVER  # pieces of text after which the caller leaves; 0: once sent
    turns: tuple[Turn, ...] = ()  # later turns of the same session
