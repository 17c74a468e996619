"""Ensemble: ask several targets at once, and choose one of their answers."""

import asyncio
import inspect
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.llm.options import Options
from headway.routing.attempts import Attempt, Attempts, error_of
from headway.routing.decision import Why
from headway.routing.judges import Normalise, of_sample, plain, votes, with_logprobs
from headway.routing.request import RouteAnswer
from headway.routing.route import CALLERS_FAULT, Route, Rows, forgotten
from headway.routing.targets.target import Target

Score = Callable[[RouteAnswer], float | Awaitable[float]]


class Chooser(Protocol):
    """Chooses the answer that an ensemble gives."""

    def options(self, options: Options) -> Options:
        """The options to ask the models with. options: the caller's."""
        ...

    def is_settled(self, answers: Sequence[RouteAnswer], missing: int) -> bool:
        """Whether `missing` further answers cannot change the choice."""
        ...

    async def choose(self, answers: Sequence[RouteAnswer]) -> tuple[int, str]:
        """The index of the chosen answer, and why. There is at least one answer."""
        ...


@dataclass(frozen=True, slots=True)
class Majority:
    """Chooses the answer with the most votes; ties go to the one that came first. Self-consistency
    (Wang et al., 2022). The ensemble ends as soon as no other answer can win."""

    normalise: Normalise = plain  # answers with equal results count as equal

    def options(self, options: Options) -> Options:
        return options

    def is_settled(self, answers: Sequence[RouteAnswer], missing: int) -> bool:
        (number, first), *others = votes(answers, self.normalise)
        return number >= missing and all(
            number - (at < first) >= other + missing  # the earlier answer wins a tie
            for other, at in others
        )

    async def choose(self, answers: Sequence[RouteAnswer]) -> tuple[int, str]:
        number, first = votes(answers, self.normalise)[0]
        return first, f"{number} of {len(answers)} votes"


@dataclass(frozen=True, slots=True)
class Best:
    """Chooses the answer with the highest score; ties go to the one that came first.

    score: a function or coroutine function of the answer; None: the mean log-probability of its
    tokens. An error that it raises ends the request.
    """

    score: Score | None = None

    def options(self, options: Options) -> Options:
        return options if self.score else with_logprobs(options)

    def is_settled(self, answers: Sequence[RouteAnswer], missing: int) -> bool:
        return missing == 0

    async def choose(self, answers: Sequence[RouteAnswer]) -> tuple[int, str]:
        scores = [await self._score(each) for each in answers]
        best = max(range(len(scores)), key=lambda at: (scores[at], -at))
        return best, f"a score of {scores[best]:.3g}, the best of {len(scores)}"

    async def _score(self, answer: RouteAnswer) -> float:
        found = self.score(answer) if self.score else answer.logprob
        value = float(await found if inspect.isawaitable(found) else found)
        return -math.inf if math.isnan(value) else value


class Ensemble(Route):
    """Asks all of its targets at once. List a target several times to get several samples of it.
    The samples differ only if the temperature is above 0.

    choose: Majority() or Best().
    quorum: once this many answers are there, the other attempts are cancelled; 0: wait for all. At
    the deadline, or if targets fail, the choice is among the answers so far.
    least: with fewer answers the request fails.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        choose: Chooser = Majority(),
        *,
        quorum: int = 0,
        least: int = 1,
        name: str = "",
        rows: Rows = forgotten,
    ) -> None:
        super().__init__(targets, name=name, rows=rows)
        self._choose, self._quorum = choose, quorum or len(self.targets)
        self._least = least
        if not 1 <= self._least <= self._quorum <= len(self.targets):
            raise SettingError(
                f"{self.name}: a quorum of {self._quorum} of {len(self.targets)} targets, and "
                f"{least} at least: 1 <= least <= quorum <= targets"
            )

    async def decide(self, attempts: Attempts) -> Attempt:
        self._ask_all(attempts)
        answered, errors = list[Attempt](), list[BaseException]()
        while attempts.open and len(answered) < self._quorum:
            attempt = await attempts.next()
            if attempt is None:  # the deadline
                break
            if isinstance(attempt.error, CALLERS_FAULT):
                raise attempt.error
            if attempt.error is not None:
                errors.append(error_of(attempt))
            else:
                answered.append(attempt)
            missing = min(self._quorum - len(answered), len(attempts.open))
            found = [each.answer for each in answered]
            if len(found) >= self._least and self._choose.is_settled(found, missing):
                break
        if len(answered) < self._least:
            raise errors[-1] if errors and not attempts.open else attempts.too_late()
        return await self._chosen(attempts, answered)

    def _ask_all(self, attempts: Attempts) -> None:
        options, seen = self._choose.options(attempts.request.options), Counter[str]()
        for number, target in enumerate(self.targets, 1):
            own = of_sample(options, seen[target.name])
            words = f"{number} of {len(self.targets)}, a quorum is {self._quorum}"
            attempts.start(target, Why.MEMBER, words, options=own)
            seen[target.name] += 1

    async def _chosen(self, attempts: Attempts, answered: Sequence[Attempt]) -> Attempt:
        deadline = attempts.request.deadline
        try:
            until = None if deadline == NEVER else deadline / 1e9
            async with asyncio.timeout_at(until) as limit:
                best, words = await self._choose.choose([each.answer for each in answered])
        except TimeoutError:
            if not limit.expired():
                raise  # a TimeoutError before the deadline is the chooser's own
            best, words = 0, "the deadline was over before the answers had their scores"
            answered[0].answer = replace(answered[0].answer, accepted=False)
        answered[best].verdict = words
        return answered[best]
