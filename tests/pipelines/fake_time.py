"""FakeTime: the clock of a live pipeline, moved only by the functions of its stages."""

from collections import Counter
from threading import Condition

import pytest

from headway import Batcher
from headway.core.request import Finish


class FakeTime:
    """Each function says how long it took. Time moves only after the earlier results of its stage
    were delivered. The engine delivers them while the next call already runs, in no time."""

    def __init__(self, monkeypatch):
        self.shown = 0
        self._computed, self._told, self._changed = Counter(), Counter(), Condition()
        tell = Batcher.tell

        def counting(batcher, news):
            tell(batcher, news)
            with self._changed:
                self._told[batcher.name] += news.finish is Finish.COMPUTED
                self._changed.notify_all()

        monkeypatch.setattr(Batcher, "tell", counting)
        monkeypatch.setattr("headway.live.clock.monotonic_ns", self.now)

    def now(self):
        return self.shown

    def advance_to(self, time):
        self.shown = max(self.shown, time)

    def taking(self, name, base, per_item, function):
        """A stage's function of this name. base, per_item: nanoseconds. function: for one item."""

        def call(items):
            with self._changed:
                if not self._changed.wait_for(lambda: self._told[name] == self._computed[name], 30):
                    pytest.fail(f"{name}: results were not told")
                self._computed[name] += len(items)
                self.shown += base + per_item * len(items)
            return [function(item) for item in items]

        call.__qualname__ = name
        return call
