"""Cascade: ask the cheapest target first, and a larger one if the answer is not good enough."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from headway.core.request import NEVER
from headway.errors import DeadlineError, SettingError, first_line
from headway.routing.attempts import Attempt, Attempts, error_of, loop_now
from headway.routing.decision import Outcome, Why
from headway.routing.judges import Judge, Verdict
from headway.routing.route import CALLERS_FAULT, Route, Rows, forgotten
from headway.routing.targets.target import Target

SPARE = 16  # a speculative attempt starts early by 1 / SPARE of its predicted time


class Cascade(Route):
    """Asks its targets in order, from the cheapest to the largest, until a judge accepts an answer.
    The last target's answer is not judged. FrugalGPT (Chen et al., 2023) calls this an LLM cascade.

    If a target refuses or fails, the next one is asked. An error of the request itself ends the
    request. A larger target is skipped if it is predicted to miss the deadline and a rejected
    answer already exists.

    accept: one judge for all targets but the last, or one judge for each of them.
    speculate: ask the next target while an answer is still to come, once the time left is about
    what nearly all of the next target's answers take. The first good answer counts, and the other
    attempts are cancelled. This is a hedged request (Dean and Barroso, The Tail at Scale, 2013)
    whose delay follows from the deadline.
    best_effort: if no better answer comes in time, give the rejected answer of the largest target
    (RouteAnswer.accepted is False). False: raise DeadlineError, or the last target's error.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        accept: Judge | Sequence[Judge],
        *,
        speculate: bool = False,
        best_effort: bool = True,
        name: str = "",
        rows: Rows = forgotten,
    ) -> None:
        super().__init__(targets, name=name, rows=rows)
        if len(set(self.targets)) != len(self.targets) or len(self.targets) < 2:
            raise SettingError(f"{self.name}: a cascade needs two targets or more, all different")
        judged = len(self.targets) - 1
        judges = tuple(accept) if isinstance(accept, Sequence) else (accept,) * judged
        if len(judges) != judged:
            raise SettingError(
                f"{self.name}: {len(judges)} judges for {judged} targets; the last one has none"
            )
        for each in judges:
            if not hasattr(each, "judge"):
                raise SettingError(
                    f"{self.name}: {each!r} is no judge; Valid(function) makes one of a function"
                )
        self.judges = judges
        self.speculate, self.best_effort = speculate, best_effort

    async def decide(self, attempts: Attempts) -> Attempt:
        run = _Run(self, attempts)
        run.ask(Why.FIRST, "the first of the cascade")
        while True:
            attempt = await attempts.next(run.speculate_at())
            if attempt is None:
                if attempts.left > 0:
                    run.speculate()
                    continue
                return run.settle(attempts.too_late())
            if won := await run.hear(attempt):
                return won


class _Run:
    """One request in a cascade."""

    def __init__(self, cascade: Cascade, attempts: Attempts) -> None:
        self._cascade, self._attempts = cascade, attempts
        self._tiers: list[list[Attempt]] = []  # the samples of each target that was asked
        self._left = list(cascade.targets)  # targets not asked yet
        self._rejected: Attempt | None = None  # rejected answer of the largest target so far
        self._error: BaseException | None = None  # why there is no better answer

    def ask(self, why: Why, words: str) -> None:
        """Ask the next target."""
        target, at = self._left.pop(0), len(self._cascade.targets) - len(self._left) - 1
        options = self._attempts.request.options
        if at == len(self._cascade.judges):
            self._tiers.append([self._attempts.start(target, why, words)])
            return
        judge = self._cascade.judges[at]
        samples = [self._attempts.start(target, why, words, options=judge.options(options, 0))]
        for number in range(1, judge.samples):
            own, said = judge.options(options, number), f"sample {number + 1} of {judge.samples}"
            samples.append(self._attempts.start(target, Why.SAMPLE, said, options=own))
        self._tiers.append(samples)

    # -- speculation

    def speculate_at(self) -> int:
        """When to ask the next target while an answer is still to come; NEVER: do not."""
        deadline = self._attempts.request.deadline
        if not self._cascade.speculate or not self._left or deadline == NEVER:
            return NEVER
        found = self._left[0].estimate(self._attempts.request)
        if not found.is_known or found.likely > self._attempts.left:
            return NEVER
        return deadline - found.surely - found.surely // SPARE

    def speculate(self) -> None:
        """Ask the next target if its time has come."""
        if self.speculate_at() <= loop_now():
            left = self._attempts.left / 1e9
            self.ask(Why.SPECULATIVE, f"{left:.3g} s are left, which it may need")

    # -- answers

    async def hear(self, attempt: Attempt) -> Attempt | None:
        """Handle an attempt that has ended. Returns the attempt whose answer is given, or None if
        that is still open. Raises the request's error."""
        tier = next(each for each in self._tiers if attempt in each)
        at = self._place(attempt)
        if attempt.error is not None:
            if isinstance(attempt.error, CALLERS_FAULT):
                raise attempt.error
            for each in tier:
                if each is not attempt:
                    self._attempts.drop(each, Outcome.LOST)
            self._error = error_of(attempt)
            return self._escalate(at, f"{attempt.target.name} failed: {first_line(self._error)}")
        if at == len(self._cascade.judges):
            return attempt
        if not all(each.is_taken for each in tier):
            return None
        verdict = await self._judge(self._cascade.judges[at], tier)
        tier[0].verdict = verdict.words
        if verdict.is_good:
            return tier[0]
        tier[0].outcome = Outcome.REJECTED
        if self._rejected is None or self._place(self._rejected) < at:
            self._rejected = tier[0]
        return self._escalate(at, f"{attempt.target.name}: {verdict.words}")

    async def _judge(self, judge: Judge, tier: Sequence[Attempt]) -> Verdict:
        """The judge's verdict. While it decides, the next target is asked if its time has come."""
        attempts = self._attempts
        verdict = asyncio.ensure_future(judge.judge([each.answer for each in tier]))
        try:
            while True:
                until = min(self.speculate_at(), attempts.request.deadline)
                seconds = None if until == NEVER else max(0, until - loop_now()) / 1e9
                await asyncio.wait([verdict], timeout=seconds)
                if verdict.done():
                    return verdict.result()
                if attempts.left <= 0:
                    return Verdict(False, "the deadline was over before the judge had decided")
                self.speculate()
        finally:
            verdict.cancel()

    def _place(self, attempt: Attempt) -> int:
        return self._cascade.targets.index(attempt.target)

    def _escalate(self, at: int, words: str) -> Attempt | None:
        """Ask the next target, unless one larger than `at` is running. Once there is a rejected
        answer, targets without enough time are skipped."""
        attempts = self._attempts
        while self._left and not [each for each in attempts.open if self._place(each) > at]:
            found = self._left[0].estimate(attempts.request)
            if self._rejected is None or not found.is_known or found.likely <= attempts.left:
                self.ask(Why.ESCALATED, words)
                break
            said = f"{found.likely / 1e9:.3g} s predicted, {attempts.left / 1e9:.3g} s left"
            attempts.skip(self._left.pop(0), Why.NO_TIME, said)
            self._error = DeadlineError(f"{words}; no time is left for a larger target")
        return None if attempts.open else self.settle()

    def settle(self, late: DeadlineError | None = None) -> Attempt:
        """Return the rejected answer, as no better one will come. Raises the request's error if
        there is none, or if best_effort is False. late: it, if the deadline has passed."""
        if self._rejected is None or not self._cascade.best_effort:
            raise late or self._error or self._attempts.too_late()
        self._rejected.answer = replace(self._rejected.answer, accepted=False)
        return self._rejected
