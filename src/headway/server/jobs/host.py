"""JobHost: what jobs need of the server that answers their items."""

from collections.abc import Mapping
from dataclasses import dataclass

from headway.server.intake.keys import KeyRing


@dataclass(frozen=True, slots=True)
class JobHost:
    """endpoints: the paths that items may have, each with the content types that it takes. lane: of
    the items. max_waiting: requests that may wait in it. objects: the paths whose bodies are always
    JSON objects.
    """

    keys: KeyRing
    endpoints: Mapping[str, frozenset[str]]
    lane: str
    max_waiting: int
    objects: frozenset[str]

    @property
    def room(self) -> int:
        """Items that may be in the lane at once: others have a quarter of it left."""
        return max(1, self.max_waiting * 3 // 4)
