"""How many items wait in each lane (Waiting): known at once, also while a call runs."""

import threading
from collections import Counter
from collections.abc import Iterable

from headway.batching.item import Item
from headway.core.load import Load
from headway.errors import RefusedError


class Waiting:
    """Used from any thread. The engine's own Load is as old as the latest call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counter[str]()

    def enter(self, lane: str, load: Load, now: int) -> None:
        """One more item waits. Raises RefusedError if the lane is full."""
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
        """These wait no longer. Nothing happens to those that have left before."""
        with self._lock:
            for item in items:
                if item.waits:
                    item.waits = False
                    self._counts[item.lane] -= 1
