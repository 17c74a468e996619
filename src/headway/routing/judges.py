"""Judges: decide whether an answer is good enough, by its confidence, a check, or agreement."""

import inspect
import json
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from headway.errors import SettingError
from headway.llm.options import Options
from headway.routing.request import RouteAnswer

Normalise = Callable[[RouteAnswer], Any]  # answers with equal results count as equal


class Verdict(NamedTuple):
    """A judge's decision on an answer."""

    is_good: bool
    words: str  # the reason, with figures


class Judge(Protocol):
    """Decides whether a cascade may give an answer."""

    @property
    def samples(self) -> int:
        """How many answers of a target the judge needs. The first is the one that may be given."""
        ...

    def options(self, options: Options, sample: int) -> Options:
        """The options to ask a model with. sample: number of the sample, from 0."""
        ...

    async def judge(self, answers: Sequence[RouteAnswer]) -> Verdict: ...


def plain(answer: RouteAnswer) -> Any:
    """A model's text in lower case, with single spaces; a function's result as it is, but an array
    as lists: a large array's repr leaves out its middle, and two arrays have no plain equality."""
    if answer.text:
        return " ".join(answer.text.lower().split())
    return answer.value.tolist() if hasattr(answer.value, "tolist") else answer.value


def with_logprobs(options: Options) -> Options:
    """The options, with log-probabilities asked for."""
    return options if options.logprobs >= 0 else replace(options, logprobs=0)


def of_sample(options: Options, sample: int) -> Options:
    """The options for this sample. If the caller gave a seed, each further sample of the same
    target gets a different one."""
    if not sample or options.seed is None:
        return options
    return replace(options, seed=(options.seed + sample) % 2**63)


@dataclass(frozen=True, slots=True)
class Confident:
    """Accepts an answer whose tokens have at least this mean log-probability. FrugalGPT (Chen et
    al., 2023) trains a scorer for this; the model's own confidence costs nothing.

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
    """Accepts an answer if `check` returns True for it. `check` may be a coroutine function.

    An error that it raises ends the request.
    """

    check: Callable[[RouteAnswer], bool | Awaitable[bool]]
    name: str = ""  # of the check, for the rows
    samples = 1

    def options(self, options: Options, sample: int) -> Options:
        return options

    async def judge(self, answers: Sequence[RouteAnswer]) -> Verdict:
        found = self.check(answers[0])
        good = bool(await found if inspect.isawaitable(found) else found)
        name = self.name or getattr(self.check, "__name__", "the check")
        return Verdict(good, f"{name}: {'passed' if good else 'failed'}")


def matches(pattern: str) -> Valid:
    """A judge that accepts an answer whose whole text, stripped, matches a regular expression."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SettingError(f"{pattern!r} is no regular expression: {error}") from error
    return Valid(lambda answer: bool(compiled.fullmatch(answer.text.strip())), f"regex {pattern}")


def follows_schema(schema: dict[str, Any]) -> Valid:
    """A judge that accepts JSON that the schema allows. Needs the package jsonschema."""
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
            return bool(validator.is_valid(json.loads(answer.text)))
        except (ValueError, RecursionError):  # no JSON, or nested too deeply to be read
            return False

    return Valid(check, "JSON schema")


@dataclass(frozen=True, slots=True)
class Agreed:
    """Accepts an answer if all samples of the target agree. The samples are asked for at once.
    Self-consistency (Wang et al., 2022) as a test.

    Greedy samples are all the same, so a temperature is needed: the request's own, or this one for
    all samples but the first.
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
    """The votes of each distinct answer and the index of its first occurrence. Most votes first,
    then the earliest. Answers are compared by the repr of what `normalise` returns."""
    keys = [repr(normalise(each)) for each in answers]
    counted = Counter(keys)
    return sorted(
        [(number, keys.index(key)) for key, number in counted.items()],
        key=lambda each: (-each[0], each[1]),
    )
