"""How many items wait in each lane (Waiting), up to date even while a call runs."""

import threading
from collections import Counter
from collections.abc import Iterable

from headway.batching.item import Item
from headway.core.load import Load
from headway.errors import RefusedError


class Waiting:
    """The number of waiting items per lane, for any thread. The engine's own Load can be as old as
    the latest call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counter[str]()

    def enter(self, lane: str, load: Load, now: int) -> None:
        """Count one more waiting item. Raises RefusedError if the lane is full."""
        line = load.lanes[lane]
        with self._lock:
            count = self._counts[lane]
            if count < line.lane.max_waiting:
                self._counts[lane] += 1
                return
        reason = f"{count} items wait in {lane!r} already"
        if not line.drain:
            raise RefusedError(reason, now)
        drained = line.tokens / line.drain  # seconds
        later = now + int(drained * 1e9)
        raise RefusedError(f"{reason}; try again in {drained:.2g} s", later)

    def leave(self, items: Iterable[Item]) -> None:
        """Stop counting these items. Items that have left before are skipped."""
        with self._lock:
            for item in items:
                if item.waits:
                    item.waits = False
                    self._counts[item.lane] -= 1
