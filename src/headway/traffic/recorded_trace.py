"""The requests of a trace (RecordedTrace), with token counts scaled and arrivals spread."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from headway.costing.request_spec import RequestSpec
from headway.traffic.token_scale import scale_trace
from headway.traffic.trace import Arrival

COARSEST = 10_000_000_000  # nanoseconds; Mooncake's traces count in steps of 3 s


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """The arrivals of a trace. If its clock is coarse, arrivals are spread over each tick."""

    arrivals: Sequence[Arrival] = field(repr=False)
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
        times = sorted({each.at for each in self.arrivals})
        if len(times) < 2 or 2 * len(times) > len(self.arrivals):
            return 0
        tick = min(b - a for a, b in pairwise(times))
        return tick if tick <= COARSEST else 0

    def specs(self, lane: str, seed: int, context: int) -> Iterator[RequestSpec]:
        """Yield the requests of the trace, by arrival. Times count from its first arrival."""
        specs, tick = scale_trace(self.arrivals, lane, context, self.scale), self.tick
        random, zero = Random(f"{seed} jitter {lane}"), self.arrivals[0].at
        moved = [
            replace(spec, at=spec.at - zero + (random.randrange(tick) if tick else 0))
            for spec in specs
        ]
        yield from sorted(moved, key=lambda spec: spec.at)
