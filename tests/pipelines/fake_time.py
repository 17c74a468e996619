"""FakeTime: what a live pipeline's clock shows, moved by the stages' functions alone."""

from collections import Counter
from threading import Condition

import pytest

from headway import Batcher
from headway.core.request import Finish


class FakeTime:
    """A function says how long it took. Time moves only after the earlier results of its stage were
    told: the engine does that while the next call runs already, in no time of its own."""

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
        """A stage's function of this name, which takes so long, and computes an item by another."""

        def call(items):
            with self._changed:
                if not self._changed.wait_for(lambda: self._told[name] == self._computed[name], 30):
                    pytest.fail(f"{name}: results were not told")
                self._computed[name] += len(items)
                self.shown += base + per_item * len(items)
            return [function(item) for item in items]

        call.__qualname__ = name
        return call
