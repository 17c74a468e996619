"""Who asks: lengths, and the moments at which they come."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from statistics import fmean

from headway.core.request import Request
from headway.costing.token_cost import RequestSpec
from headway.errors import SettingError

SECOND = 1_000_000_000
DISTINCT = 200  # prompts that stand for all of them where each is priced


@dataclass(frozen=True)  # no slots: the means of thousands of lengths are kept once computed
class PlannedTraffic:
    """Lengths are (prompt, answer) in tokens, in order of arrival."""

    name: str
    lengths: tuple[tuple[int, int], ...] = field(repr=False)
    rate: float  # requests per second
    times: tuple[int, ...] = field(default=(), repr=False)  # nanoseconds; none: Poisson

    def __post_init__(self) -> None:
        if not self.lengths:
            raise SettingError(f"{self.name} has no requests: nothing can be planned for it")
        if not 0 < self.rate < float("inf"):
            raise SettingError(f"the rate must be more than 0 requests a second, not {self.rate}")
        if min(min(both) for both in self.lengths) < 1:
            raise SettingError("prompts and answers must be 1 token or more")

    @cached_property
    def prompt(self) -> float:
        return fmean(prompt for prompt, _ in self.lengths)

    @cached_property
    def answer(self) -> float:
        return fmean(answer for _, answer in self.lengths)

    @property
    def decodes(self) -> float:
        """Steps of a request behind the one that computed its prompt and said its first token."""
        return self.answer - 1

    @cached_property
    def held(self) -> float:
        """Tokens in the KV memory, added up over a request's decode steps: P L + L^2 / 2."""
        return fmean(p * (a - 1) + a * (a - 1) / 2 for p, a in self.lengths)

    @cached_property
    def context(self) -> float:
        """Tokens that a decoding row attends to, on average over the decode steps."""
        return self.held / self.decodes if self.decodes else self.prompt

    @cached_property
    def prompts(self) -> list[int]:
        """All of them, or quantiles of them where they are many; ascending."""
        every = max(1, len(self.lengths) // DISTINCT)
        return sorted(prompt for prompt, _ in self.lengths)[every // 2 :: every]

    @property
    def span(self) -> int:
        """Nanoseconds from a trace's first arrival to its last. SettingError if there are none."""
        if not (span := self.times[-1] - self.times[0]):
            raise SettingError(
                f"the first {len(self.times):,} requests of {self.name} come at one moment and "
                "cannot be played faster or slower: take a trace whose times are finer"
            )
        return span

    def poisson(self, count: int, rate: float, seed: int) -> list[Request]:
        """The same gaps, in another measure, whatever the rate: common random numbers.

        Of more lengths than requests every so many, so that the whole trace is in it.
        """
        draw, at, requests = Random(f"{seed} arrivals"), 0.0, list[Request]()
        every = max(1.0, len(self.lengths) / count)
        for number in range(count):
            at += draw.expovariate(1) * SECOND / rate
            requests.append(self._request(number, int(at), int(number * every)))
        return requests

    def recorded(self, rate: float) -> list[Request]:
        """As the trace says, spread evenly to this mean rate. SettingError without a span."""
        stretch = len(self.times) * SECOND / rate / self.span
        return [
            self._request(number, int((time - self.times[0]) * stretch), number)
            for number, time in enumerate(self.times)
        ]

    def backlog(self, count: int) -> list[Request]:
        return [self._request(number, 0, number) for number in range(count)]

    def cut(self, count: int) -> "PlannedTraffic":
        """Its first so many requests, at their own rate."""
        if count >= len(self.lengths):
            return self
        times = self.times[:count]
        rate = count * SECOND / max(1, times[-1] - times[0]) if times else self.rate
        return PlannedTraffic(self.name, self.lengths[:count], rate, times)

    def _request(self, number: int, at: int, like: int) -> Request:
        """Its prompt begins like no other's, so that nothing is won from the prefix cache."""
        prompt, answer = self.lengths[like % len(self.lengths)]
        return Request(str(number), (number,) * prompt, answer, at)


def steady(rate: float, prompt: int, answer: int) -> PlannedTraffic:
    """Poisson arrivals of one length."""
    return PlannedTraffic(f"{prompt} + {answer} tokens, Poisson", ((prompt, answer),), rate)


def traced(name: str, asks: Sequence[RequestSpec]) -> PlannedTraffic:
    if len(asks) < 2 or asks[-1].at == asks[0].at:
        raise SettingError(f"the trace {name} has no span: it needs two arrivals or more")
    rate = len(asks) * SECOND / (asks[-1].at - asks[0].at)
    lengths = tuple((ask.prompt, ask.answer) for ask in asks)
    return PlannedTraffic(name, lengths, rate, tuple(ask.at for ask in asks))
