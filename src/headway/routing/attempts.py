"""Attempts: one request sent to one or more targets, each in a task of its own."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from headway.core.request import NEVER
from headway.errors import DeadlineError, EngineError, RefusedError, first_line
from headway.routing.bill import Bill
from headway.routing.decision import AttemptRow, Outcome, Why
from headway.routing.request import RouteAnswer, RouteRequest
from headway.routing.targets.target import Target

NOT_YET = RouteAnswer(None)
END = object()  # in place of a stream's first piece: the stream has none


def loop_now() -> int:
    """Nanoseconds of the running event loop's clock: monotonic time, or virtual time (sim.loop)."""
    return round(asyncio.get_running_loop().time() * 1e9)


class Attempt:
    """One request as sent to one target."""

    def __init__(self, target: Target, why: Why, words: str, request: RouteRequest) -> None:
        self.target, self.why, self.words, self.request = target, why, words, request
        self.began = self.ended = NEVER
        self.answer = NOT_YET
        self.error: BaseException | None = None
        self.outcome: Outcome | None = None  # set by the route; None: see plain_outcome
        self.verdict = ""  # what the route made of the answer, in words
        self.is_taken = False  # the route has been told of its end, or has dropped it
        self.is_forgotten = False  # its answer is no longer wanted
        self.bill: Bill | None = None  # None: the target was not asked
        self.task: asyncio.Task[None] | None = None
        self.pieces: AsyncGenerator[Any] | None = None  # of a stream, after `first`
        self.first: Any = END

    @property
    def is_over(self) -> bool:
        return self.ended != NEVER

    @property
    def answered(self) -> bool:
        """Whether it has an answer or, if it streams, its first piece."""
        return self.is_over and self.error is None

    @property
    def is_closed(self) -> bool:
        """Whether it has ended and its cost is known, or its target was never asked."""
        return self.bill is None or (self.is_over and self.bill.is_closed)

    def row(self, cancelled: Outcome) -> AttemptRow:
        """The attempt's row, once it is closed. cancelled: the outcome if it was cancelled."""
        bill = self.bill
        return AttemptRow(
            id=self.request.id,
            target=self.target.name,
            why=self.why,
            words=self.words,
            outcome=self.outcome or self.plain_outcome(cancelled),
            began=self.began,
            ended=self.ended,
            nanoseconds=bill.nanoseconds if bill else 0,
            cost=bill.cost if bill else 0,
            is_measured=bill.is_measured if bill else False,
            error="" if self.error is None or self.was_left else first_line(self.error),
            answered=self.answered,
            verdict=self.verdict,
        )

    @property
    def was_left(self) -> bool:
        """Whether the attempt was cancelled, or its stream was not read to the end."""
        return isinstance(self.error, asyncio.CancelledError | GeneratorExit)

    def plain_outcome(self, cancelled: Outcome) -> Outcome:
        """The outcome by the attempt's error, where the route has set none."""
        match self.error:
            case RefusedError():
                return Outcome.REFUSED
            case DeadlineError():
                return Outcome.LATE
            case None:
                return Outcome.LOST
        return cancelled if self.was_left else Outcome.FAILED


class Attempts:
    """Starts, awaits and cancels attempts. It decides nothing."""

    def __init__(self, request: RouteRequest, streams: bool, closed: Callable[[], object]) -> None:
        """closed: called after `end`, once the costs of all attempts are known."""
        self.request, self.all = request, list[Attempt]()
        self.streams, self._closed = streams, closed
        self._is_ended = self._is_told = False
        self._closing = set[asyncio.Task[None]]()  # streams that are being closed unread

    @property
    def left(self) -> int:
        """Nanoseconds until the deadline; NEVER: no deadline. Negative: the deadline has passed."""
        deadline = self.request.deadline
        return NEVER if deadline == NEVER else deadline - loop_now()

    @property
    def open(self) -> list[Attempt]:
        """Started attempts whose end the route has not been told of."""
        return [each for each in self.all if each.task and not each.is_taken]

    def start(self, target: Target, why: Why, words: str, **changes: Any) -> Attempt:
        """Start an attempt at this target. changes: fields that differ in its request."""
        attempt = self._add(target, why, words, changes)
        attempt.bill = Bill(self._check_closed)
        attempt.began = loop_now()
        attempt.task = asyncio.get_running_loop().create_task(self._run(attempt))
        attempt.task.add_done_callback(lambda task: self._over(attempt, task))
        return attempt

    def skip(self, target: Target, why: Why, words: str) -> None:
        """Record that a target is not asked, and why."""
        self._add(target, why, words, {}).outcome = Outcome.SKIPPED

    def _add(self, target: Target, why: Why, words: str, changes: dict[str, Any]) -> Attempt:
        id = f"{self.request.id}.{len(self.all) + 1}"
        above = f"{self.request.reason}; " if self.request.reason else ""
        reason = f"{above}{why}: {words}"
        own = replace(self.request, id=id, reason=reason, **changes)
        attempt = Attempt(target, why, words, own)
        self.all.append(attempt)
        return attempt

    async def _run(self, attempt: Attempt) -> None:
        assert attempt.bill
        if not self.streams:
            attempt.answer = await attempt.target.ask(attempt.request, attempt.bill)
            return
        attempt.pieces = attempt.target.stream(attempt.request, attempt.bill)
        with suppress(StopAsyncIteration):
            attempt.first = await anext(attempt.pieces)

    def _over(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        attempt.ended = loop_now()
        attempt.error = asyncio.CancelledError() if task.cancelled() else task.exception()
        assert attempt.bill
        if attempt.pieces is None or attempt.error is not None or attempt.first is END:
            attempt.bill.over()  # else the stream goes on
        elif attempt.is_forgotten:  # its first piece came while it was being cancelled
            self._close_stream(attempt)
        self._check_closed()

    async def next(self, until: int = NEVER) -> Attempt | None:
        """Wait for an attempt to end and return it. If several have ended, the one begun first.
        None: `until` or the deadline came first."""
        until = min(until, self.request.deadline)
        while True:
            for attempt in self.open:
                if attempt.is_over:
                    attempt.is_taken = True
                    return attempt
            left = until - loop_now()
            if left <= 0:
                return None
            tasks = [each.task for each in self.open if each.task]
            seconds = None if until == NEVER else left / 1e9
            if tasks:
                await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            else:
                assert seconds is not None, "nobody is asked, and no time is named"
                await asyncio.sleep(seconds)

    def check_time(self) -> None:
        """Raise DeadlineError if the deadline has passed."""
        if self.left <= 0:
            raise self.too_late()

    async def only(self) -> Attempt:
        """Wait for the next attempt to end and return it. Raises its error, or DeadlineError."""
        attempt = await self.next()
        if attempt is None:
            raise self.too_late()
        if attempt.error is not None:
            raise error_of(attempt)
        return attempt

    def too_late(self) -> DeadlineError:
        """The error of a request whose deadline has passed."""
        asked = ", ".join([each.target.name for each in self.all if each.task]) or "nobody"
        return DeadlineError(f"the deadline was over before an answer came; asked: {asked}")

    def drop(self, attempt: Attempt, outcome: Outcome, verdict: str = "") -> None:
        """Cancel an attempt, or forget its answer. verdict: why, in words."""
        attempt.is_taken, attempt.outcome, attempt.verdict = True, outcome, verdict
        if attempt.task and not attempt.is_over:
            attempt.task.cancel()

    def cancel_others(self, winner: Attempt | None) -> None:
        """Cancel all attempts but the winner, and forget their answers. None: no winner."""
        for attempt in self.all:
            if attempt is winner or attempt.task is None or attempt.is_forgotten:
                continue
            attempt.is_taken = attempt.is_forgotten = True
            if not attempt.is_over:
                attempt.task.cancel()
            self._close_stream(attempt)

    def end(self) -> None:
        """Note that the caller has its answer or its error."""
        self._is_ended = True
        self._check_closed()

    def stream_over(self, attempt: Attempt, error: BaseException | None) -> None:
        """Note that the winner's stream was read to its end, or left before it."""
        attempt.ended, attempt.error = loop_now(), error
        assert attempt.bill
        attempt.bill.over()

    def _close_stream(self, attempt: Attempt) -> None:
        """Close the stream of a loser that has given its first piece."""
        if attempt.pieces and attempt.answered and attempt.first is not END:
            task = asyncio.get_running_loop().create_task(self._aclose(attempt))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _aclose(self, attempt: Attempt) -> None:
        assert attempt.pieces and attempt.bill
        try:
            await attempt.pieces.aclose()
        finally:
            attempt.bill.over()

    def _check_closed(self) -> None:
        if self._is_ended and not self._is_told and all(each.is_closed for each in self.all):
            self._is_told = True
            self._closed()


def error_of(attempt: Attempt) -> BaseException:
    """The error of an attempt without an answer, as the caller is to see it."""
    assert attempt.error is not None
    if isinstance(attempt.error, asyncio.CancelledError):  # not cancelled by this route
        return EngineError(f"{attempt.target.name} has cancelled the request")
    return attempt.error
