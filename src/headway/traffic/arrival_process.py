"""Synthetic arrivals (ArrivalProcess) and the lengths of their requests (Lengths)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log, sqrt
from random import Random

from headway.costing.request_spec import RequestSpec
from headway.traffic.token_scale import fit_to_context

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts: uniform from least to most, or log-normal."""

    least: int = 1
    most: int = 1
    mean: float = 0.0  # 0: uniform
    cv: float = 0.0  # standard deviation over mean

    def draw(self, random: Random) -> int:
        """Draw a length in tokens: uniform, or log-normal where a mean is set."""
        if not self.mean:
            return random.randint(self.least, self.most)
        spread = log(1 + self.cv**2)
        return max(1, round(exp(random.gauss(log(self.mean) - spread / 2, sqrt(spread)))))


@dataclass(frozen=True, slots=True)
class ArrivalProcess:
    """Arrivals with gamma-distributed gaps of one second on average; or all at once."""

    prompt: Lengths
    answer: Lengths
    cv: float = 1.0  # 1: Poisson
    at_once: bool = False
    prefix: int = 0  # tokens that come before each prompt; the prompt's length excludes them

    def specs(self, lane: str, seed: int, context: int) -> Iterator[RequestSpec]:
        """Yield requests without end, by arrival. Unscaled, they come at one per second."""
        random, at, room = Random(f"{seed} arrivals {lane}"), 0.0, context - self.prefix
        while True:
            if not self.at_once:
                at += random.gammavariate(1 / self.cv**2, self.cv**2) if self.cv else 1.0
            answer = self.answer.draw(random)
            prompt = self.prompt.draw(random)
            yield fit_to_context(RequestSpec(round(at * SECOND), lane, prompt, answer), room)
