"""JobHost: what jobs need from the server that answers their items."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headway.server.intake.keys import KeyRing


@dataclass(frozen=True, slots=True)
class JobHost:
    """The server as jobs see it.

    endpoints: the paths that items may have, each with its content types. lane: the items' lane.
    max_waiting: requests that may wait in that lane. objects: paths whose bodies must be JSON
    objects. streams: whether a path's answers are always streams, as far as it is known.
    """

    keys: KeyRing
    endpoints: Mapping[str, frozenset[str]]
    lane: str
    max_waiting: int
    objects: frozenset[str]
    streams: Callable[[str], bool] = lambda path: False

    @property
    def room(self) -> int:
        """Items that may be in the lane at once. A quarter of it is left to other requests."""
        return max(1, self.max_waiting * 3 // 4)
