"""Which version is in force when, in a trial on one engine or on two (Switchback)."""

from dataclasses import dataclass
from functools import lru_cache
from random import Random

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Switchback:
    """Pairs of time slices. A fair coin decides which version comes first in each pair.

        |<------- pair 0 ------->|<------- pair 1 ------->|
        | control   | candidate  | candidate | control    |
        |~~ judged  |~~ judged   |           |~~ judged   |     ~~ wash-out

    A request belongs to the slice in which it arrived. A request that arrives in the wash-out,
    while requests of the last version still run, is left out. No request is left out for how long
    it took, because that would drop the slow ones. If a pair begins with the version that ended
    the last pair, it still has a wash-out there, so that both halves of a pair are alike.

    If two engines share the traffic, they always run opposite versions:

        engine 0 | control   | candidate  | candidate | control    |
        engine 1 | candidate | control    | control   | candidate  |

    Then each pair has both versions on both engines and in both slices. Differences between the
    engines, between the requests that are sent to them, and between the slices cancel.
    """

    began: int  # nanoseconds
    slice: int
    wash_out: int
    seed: int

    def place(self, at: int) -> int:
        """The number of the slice at this time; negative: before the trial."""
        return (at - self.began) // self.slice

    def is_judged(self, at: int) -> bool:
        """Whether a request that arrives at this time counts."""
        return at >= self.began and (at - self.began) % self.slice >= self.wash_out

    def has_candidate(self, place: int, engine: int = 0) -> bool:
        """Whether the candidate is in force on this engine in this slice."""
        return _begins(self.seed, place // 2) == ((place + engine) % 2 == 0)

    def with_candidate(self, since: int, until: int, engine: int = 0) -> int:
        """Nanoseconds between two times of the trial in which the candidate was in force on this
        engine."""
        places = range(self.place(since), self.place(until) + 1)
        return sum(
            [
                min(until, self.end(place)) - max(since, self.end(place - 1))
                for place in places
                if self.has_candidate(place, engine)
            ]
        )

    def end(self, place: int) -> int:
        """When this slice is over."""
        return self.began + (place + 1) * self.slice


@lru_cache(maxsize=1_024)
def _begins(seed: int, pair: int) -> bool:
    """Whether the candidate comes first in this pair: a fair coin."""
    return Random(f"{seed} pair {pair}").random() < 0.5
