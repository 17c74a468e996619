"""Doubt: what a route makes of a target's predictions that may be wrong or old."""

from dataclasses import replace

from headway.core.request import NEVER
from headway.routing.circuit import USUAL
from headway.routing.targets.target import Estimate

PAUSE = int(USUAL.pause * 1e9)  # nanoseconds until a target that is passed over is probed
SPARE = 16  # of a probe, the next target is asked early by 1 / SPARE of its predicted time
LONGER = 10  # a late target is taken to need longer than it has had, by 1 / LONGER


class Doubt:
    """What a route's own attempts say about one target's predictions. Times are nanoseconds; `now`
    is handed in.

    Targets learn from whole answers. So a prediction stays as it is once nobody asks the target,
    and while every attempt is cut off. Hence a route probes a target that it passes over, and it
    learns from attempts that are late. The limits are those of a usual circuit.
    """

    def __init__(self) -> None:
        self._late = 0  # attempts in a row that were predicted to be in time, and were late
        self._longest = 0  # nanoseconds that the longest of them has had
        self._probe_at = NEVER  # when a request may probe the target; NEVER: no pause has begun

    def believed(self, found: Estimate) -> Estimate:
        """The estimate, unless several attempts in a row have shown that it takes longer."""
        if self._late < USUAL.failures:
            return found
        least = self._longest + self._longest // LONGER
        if not found.is_known:
            return Estimate(least, least)
        return replace(found, likely=max(found.likely, least), surely=max(found.surely, least))

    def is_due(self, likely: int, now: int) -> bool:
        """Whether this request may probe the target, which is passed over for its prediction. The
        first one that asks begins the pause. likely: as predicted. A target that is unknown, or
        says that it cannot answer at all, is not probed."""
        if likely >= NEVER - 1:
            return False
        if self._probe_at == NEVER:
            self.heard(now)
        return now >= self._probe_at

    def heard(self, now: int) -> None:
        """Note that the target is asked, or that an attempt has ended: the pause begins again."""
        self._probe_at = now + PAUSE

    def answered(self) -> None:
        """Note that the target has answered in time."""
        self._late = self._longest = 0

    def late(self, span: int) -> None:
        """Note that an attempt was cut off after so long, though it was predicted in time."""
        self._late += 1
        self._longest = max(self._longest, span)
