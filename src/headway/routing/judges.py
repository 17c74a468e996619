"""Judges: whether an answer is good enough, by its confidence, a check of its own, or agreement."""

import inspect
import json
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from headway.errors import SettingError
from headway.options import Options
from headway.routing.request import RouteAnswer

Normalise = Callable[[RouteAnswer], Any]  # answers are equal whose results are


class Verdict(NamedTuple):
    """What a judge says."""

    is_good: bool
    words: str  # with figures


class Judge(Protocol):
    """Says whether a cascade may give an answer."""

    @property
    def samples(self) -> int:
        """How many answers of a target it wants to see; the first of them is the one given."""
        ...

    def options(self, options: Options, sample: int) -> Options:
        """Of a model's request, for this sample, from 0."""
        ...

    async def judge(self, answers: Sequence[RouteAnswer]) -> Verdict: ...


def plain(answer: RouteAnswer) -> Any:
    """A model's text in lower case, with single spaces; a function's result as it is."""
    return " ".join(answer.text.lower().split()) if answer.text else answer.value


def with_logprobs(options: Options) -> Options:
    """A model answers with log-probabilities, too."""
    return options if options.logprobs >= 0 else replace(options, logprobs=0)


def of_sample(options: Options, sample: int) -> Options:
    """A seed that the caller gave is another one for each further answer of the same target."""
    if not sample or options.seed is None:
        return options
    return replace(options, seed=(options.seed + sample) % 2**63)


@dataclass(frozen=True, slots=True)
class Confident:
    """The mean log-probability of the answer's tokens is at least this. FrugalGPT (Chen et al.,
    2023) trains a scorer for the purpose; the model's own confidence costs nothing.

    `calibrate_cascade` chooses the threshold from data.
    """

    least: float  # natural logarithm, 0 or less
    samples = 1

    def __post_init__(self) -> None:
        if math.isnan(self.least):
            raise SettingError("a threshold of nan accepts nothing: was it calibrated on enough?")

    def options(self, options: Options, sample: int) -> Options:
        return with_logprobs(options)

    async def judge(self, answers: Sequence[RouteAnswer]) -> Verdict:
        found = answers[0].logprob
        if math.isnan(found):
            return Verdict(False, "the target returned no log-probabilities")
        words = f"mean log-probability {found:.3g}, at least {self.least:.3g} wanted"
        return Verdict(found >= self.least, words)


@dataclass(frozen=True, slots=True)
class Valid:
    """A function of the answer says so, with a bool; it may be a coroutine function.

    What it raises ends the request with that error.
    """

    check: Callable[[RouteAnswer], bool | Awaitable[bool]]
    name: str = ""  # of the check, for rows
    samples = 1

    def options(self, options: Options, sample: int) -> Options:
        return options

    async def judge(self, answers: Sequence[RouteAnswer]) -> Verdict:
        found = self.check(answers[0])
        good = bool(await found if inspect.isawaitable(found) else found)
        name = self.name or getattr(self.check, "__name__", "the check")
        return Verdict(good, f"{name}: {'passed' if good else 'failed'}")


def matches(pattern: str) -> Valid:
    """The whole text matches a regular expression."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SettingError(f"{pattern!r} is no regular expression: {error}") from error
    return Valid(lambda answer: bool(compiled.fullmatch(answer.text.strip())), f"regex {pattern}")


def follows_schema(schema: dict[str, Any]) -> Valid:
    """The text is JSON that a JSON schema allows. Needs the package jsonschema."""
    try:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
    except ImportError as error:
        raise SettingError("to check JSON by a schema, pip install jsonschema") from error
    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise SettingError(f"the JSON schema cannot be used: {error.message}") from error
    validator = kind(schema)

    def check(answer: RouteAnswer) -> bool:
        try:
            value = json.loads(answer.text)
        except ValueError:
            return False
        return bool(validator.is_valid(value))

    return Valid(check, "JSON schema")


@dataclass(frozen=True, slots=True)
class Agreed:
    """Several answers of the target are equal: it is asked so often at once. Self-consistency (Wang
    et al., 2022) as a test.

    Samples of a greedy answer are all the same, so a temperature is needed: the requests' own, or
    this one for all samples but the first.
    """

    samples: int = 2
    normalise: Normalise = plain
    temperature: float = 0.0  # of the samples after the first; 0: the request's own

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise SettingError(f"{self.samples} samples cannot agree: 2 or more can")

    def options(self, options: Options, sample: int) -> Options:
        if sample and self.temperature:
            options = replace(options, temperature=self.temperature)
        return of_sample(options, sample)

    async def judge(self, answers: Sequence[RouteAnswer]) -> Verdict:
        keys = [self.normalise(each) for each in answers]
        same = sum([key == keys[0] for key in keys])
        return Verdict(same == len(keys), f"{same} of {len(keys)} samples agree")


def votes(answers: Sequence[RouteAnswer], normalise: Normalise) -> list[tuple[int, int]]:
    """For each different answer, its votes and the index of its first; the most votes first, then
    the earliest. Answers are told apart by the repr of what `normalise` makes of them."""
    keys = [repr(normalise(each)) for each in answers]
    counted = Counter(keys)
    return sorted(
        [(number, keys.index(key)) for key, number in counted.items()],
        key=lambda each: (-each[0], each[1]),
    )
