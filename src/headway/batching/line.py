"""What waits in each lane (Waiting), up to date even while a call runs."""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

from headway.batching.item import Item
from headway.core.admission import in_seconds
from headway.core.load import Load
from headway.core.request import NEVER
from headway.errors import RefusedError


class Waiting:
    """The number and the cost of the waiting items of each lane, for any thread. The engine's own
    Load leaves out the items that it has not read yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts, self._costs = Counter[str](), Counter[str]()

    def enter(self, items: Sequence[Item], load: Load, now: int) -> None:
        """Count these items of one lane. Raises RefusedError, and counts none, if they are more
        than the lane has places for."""
        if not items:
            return
        lane = items[0].lane
        cost, most = sum([each.cost for each in items]), load.lanes[lane].lane.max_waiting
        with self._lock:
            count = self._counts[lane]
            if count + len(items) <= most:
                self._counts[lane] += len(items)
                self._costs[lane] += cost
                for each in items:
                    each.waits = True
                return
        if len(items) > most:
            what = f"{len(items)} items come together, and no more than {most} may ever wait"
            raise RefusedError(f"{what} in {lane!r}", NEVER)
        reason, line = f"{count} items wait in {lane!r} already", self.counted(load).lanes[lane]
        drained = int(line.tokens / line.drain * 1e9) if line.drain else 0
        wait = max(0, load.begins - now) + drained
        if wait:
            reason += f"; try again in {in_seconds(wait)}"
        raise RefusedError(reason, now + wait)

    def leave(self, items: Iterable[Item]) -> None:
        """Stop counting these items. Items that have left before are skipped."""
        with self._lock:
            for item in items:
                if item.waits:
                    item.waits = False
                    self._counts[item.lane] -= 1
                    self._costs[item.lane] -= item.cost

    def counted(self, load: Load) -> Load:
        """This load, with what waits now."""
        with self._lock:
            lanes = {
                name: line._replace(waiting=self._counts[name], tokens=self._costs[name])
                for name, line in load.lanes.items()
            }
        return load._replace(lanes=lanes)
