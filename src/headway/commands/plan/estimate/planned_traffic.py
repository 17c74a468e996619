"""The traffic of a plan: the lengths of its requests, their rate and their arrival times."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from statistics import fmean

from headway.core.request import Request
from headway.costing.request_spec import RequestSpec
from headway.errors import SettingError

SECOND = 1_000_000_000
DISTINCT = 200  # about this many prompt lengths stand for all of them


@dataclass(frozen=True)  # no slots, so that the means over thousands of lengths are cached
class PlannedTraffic:
    """A trace, or Poisson arrivals. Lengths are (prompt, answer) in tokens, in order of arrival.

    Raises SettingError if it has no requests, a length below 1 or an impossible rate.
    """

    name: str
    lengths: tuple[tuple[int, int], ...] = field(repr=False)
    rate: float  # requests per second
    times: tuple[int, ...] = field(default=(), repr=False)  # nanoseconds; empty: Poisson

    def __post_init__(self) -> None:
        if not self.lengths:
            raise SettingError(f"{self.name} has no requests: nothing can be planned for it")
        if not 0 < self.rate < float("inf"):
            raise SettingError(f"the rate must be more than 0 requests a second, not {self.rate}")
        if min(min(both) for both in self.lengths) < 1:
            raise SettingError("prompts and answers must be 1 token or more")

    @cached_property
    def prompt(self) -> float:
        """Mean tokens of a prompt."""
        return fmean(prompt for prompt, _ in self.lengths)

    @cached_property
    def answer(self) -> float:
        """Mean tokens of an answer."""
        return fmean(answer for _, answer in self.lengths)

    @property
    def decodes(self) -> float:
        """Mean decode steps of a request: the first token comes from the prompt's step."""
        return self.answer - 1

    @cached_property
    def held(self) -> float:
        """Mean of a request's KV tokens, summed over its decode steps: P L + L^2 / 2."""
        return fmean(p * (a - 1) + a * (a - 1) / 2 for p, a in self.lengths)

    @cached_property
    def context(self) -> float:
        """Mean tokens that a decoding row attends to."""
        return self.held / self.decodes if self.decodes else self.prompt

    @cached_property
    def prompts(self) -> list[int]:
        """The prompt lengths, ascending; if there are many, an evenly spaced sample."""
        every = max(1, len(self.lengths) // DISTINCT)
        return sorted(prompt for prompt, _ in self.lengths)[every // 2 :: every]

    @property
    def span(self) -> int:
        """Nanoseconds from the trace's first arrival to its last. SettingError if that is 0."""
        if not (span := self.times[-1] - self.times[0]):
            raise SettingError(
                f"the first {len(self.times):,} requests of {self.name} come at one moment and "
                "cannot be sped up or slowed down: take a trace with finer times"
            )
        return span

    def poisson(self, count: int, rate: float, seed: int) -> list[Request]:
        """`count` requests with Poisson arrivals. rate: per second.

        All rates share the same random gaps, scaled. If there are more lengths than requests,
        evenly spaced ones are taken, to cover the whole trace.
        """
        draw, at, requests = Random(f"{seed} arrivals"), 0.0, list[Request]()
        every = max(1.0, len(self.lengths) / count)
        for number in range(count):
            at += draw.expovariate(1) * SECOND / rate
            requests.append(self._request(number, int(at), int(number * every)))
        return requests

    def recorded(self, rate: float) -> list[Request]:
        """The trace's arrivals, sped up or slowed down to a mean rate per second.

        Raises SettingError if all of them come at one moment.
        """
        stretch = len(self.times) * SECOND / rate / self.span
        return [
            self._request(number, int((time - self.times[0]) * stretch), number)
            for number, time in enumerate(self.times)
        ]

    def backlog(self, count: int) -> list[Request]:
        """`count` requests that all arrive at time 0."""
        return [self._request(number, 0, number) for number in range(count)]

    def crowd(self, count: int, times: int) -> list[Request]:
        """`count` evenly spaced requests, `times` times over, that all arrive at time 0."""
        every = max(1.0, len(self.lengths) / count)
        return [
            self._request(number, 0, int(number % count * every)) for number in range(count * times)
        ]

    def cut(self, count: int) -> "PlannedTraffic":
        """The traffic of the first `count` requests, at their own rate."""
        if count >= len(self.lengths):
            return self
        times = self.times[:count]
        rate = count * SECOND / max(1, times[-1] - times[0]) if times else self.rate
        return PlannedTraffic(self.name, self.lengths[:count], rate, times)

    def _request(self, number: int, at: int, index: int) -> Request:
        """A request with a unique prompt, so that the prefix cache never hits."""
        prompt, answer = self.lengths[index % len(self.lengths)]
        return Request(str(number), (number,) * prompt, answer, at)


def steady(rate: float, prompt: int, answer: int) -> PlannedTraffic:
    """Poisson arrivals of one length. rate: requests per second; prompt, answer: tokens."""
    return PlannedTraffic(f"{prompt} + {answer} tokens, Poisson", ((prompt, answer),), rate)


def traced(name: str, specs: Sequence[RequestSpec]) -> PlannedTraffic:
    """The traffic of a trace, at its own rate. Raises SettingError if it has no span."""
    if len(specs) < 2 or specs[-1].at == specs[0].at:
        raise SettingError(f"the trace {name} has no span: it needs two arrivals or more")
    rate = len(specs) * SECOND / (specs[-1].at - specs[0].at)
    lengths = tuple((spec.prompt, spec.answer) for spec in specs)
    return PlannedTraffic(name, lengths, rate, tuple(spec.at for spec in specs))
