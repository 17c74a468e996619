"""The requests of a trace (RecordedTrace), with token counts scaled and arrivals spread."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from random import Random

from headway.costing.request_spec import RequestSpec
from headway.traffic.token_scale import scaled
from headway.traffic.trace import Arrival

COARSEST = 10_000_000_000  # nanoseconds; Mooncake's traces count in steps of 3 s


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """The arrivals of a trace. If its clock is coarse, arrivals are spread over each tick."""

    arrivals: Sequence[Arrival] = field(repr=False)  # by time
    name: str
    scale: float  # token counts are divided by this

    @property
    def duration(self) -> int:
        """Nanoseconds from the first arrival to the last."""
        return self.arrivals[-1].at - self.arrivals[0].at

    @property
    def tick(self) -> int:
        """The resolution of the trace's clock in nanoseconds; 0 if it tells most arrivals apart.
        No clock is coarser than COARSEST: equal times further apart are bursts."""
        gaps = [after.at - at.at for at, after in pairwise(self.arrivals) if after.at != at.at]
        if not gaps or 2 * (len(gaps) + 1) > len(self.arrivals):
            return 0
        tick = min(gaps)
        return tick if tick <= COARSEST else 0

    def specs(self, lane: str, seed: int, context: int) -> Iterator[RequestSpec]:
        """Yield the requests of the trace, by arrival. Times count from its first arrival. No
        more of them are made than are taken, because traces may have millions."""
        for at, arrival in self._spread(lane, seed):
            yield replace(scaled(arrival, lane, context, self.scale), at=at)

    def times(self, lane: str, seed: int) -> Iterator[int]:
        """Yield the times of `specs`."""
        return (at for at, _ in self._spread(lane, seed))

    def _spread(self, lane: str, seed: int) -> Iterator[tuple[int, Arrival]]:
        """Yield each arrival behind its time. Those of one tick stay before those of the next."""
        random, zero, tick = Random(f"{seed} jitter {lane}"), self.arrivals[0].at, self.tick
        for at, together in groupby(self.arrivals, key=attrgetter("at")):
            spread = [(at - zero + (random.randrange(tick) if tick else 0), e) for e in together]
            yield from sorted(spread, key=itemgetter(0))
