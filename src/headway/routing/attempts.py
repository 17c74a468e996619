"""Attempts: the targets that one request is put to, each in a task of its own."""

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
END = object()  # in the place of a stream's first piece: it has none


def loop_now() -> int:
    """Nanoseconds of the running event loop's clock: monotonic time, or virtual time (sim.loop)."""
    return round(asyncio.get_running_loop().time() * 1e9)


class Attempt:
    """One target, and this request."""

    def __init__(self, target: Target, why: Why, words: str, request: RouteRequest) -> None:
        self.target, self.why, self.words, self.request = target, why, words, request
        self.began = self.ended = NEVER
        self.answer = NOT_YET
        self.error: BaseException | None = None
        self.outcome: Outcome | None = None  # what the route made of it; None: it said nothing
        self.verdict = ""  # the same in words
        self.is_taken = False  # the route has heard of its end, or has dropped it
        self.is_forgotten = False  # its answer is not wanted any more
        self.bill: Bill | None = None  # None: it was not asked
        self.task: asyncio.Task[None] | None = None
        self.pieces: AsyncGenerator[Any] | None = None  # of a stream, behind `first`
        self.first: Any = END

    @property
    def is_over(self) -> bool:
        return self.ended != NEVER

    @property
    def answered(self) -> bool:
        """Whether it has an answer or, of a stream, its first piece."""
        return self.is_over and self.error is None

    @property
    def is_closed(self) -> bool:
        """Whether it has ended and its cost is known, or it was never asked."""
        return self.bill is None or (self.is_over and self.bill.is_closed)

    def row(self, cancelled: Outcome) -> AttemptRow:
        """Its row, once it is closed. cancelled: what it means if it was cancelled."""
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
        """Whether it was cancelled, or its stream was not read to the end."""
        return isinstance(self.error, asyncio.CancelledError | GeneratorExit)

    def plain_outcome(self, cancelled: Outcome) -> Outcome:
        """What became of it, where the route itself said nothing."""
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
        """closed: called after `end`, once the cost of all attempts is known."""
        self.request, self.all = request, list[Attempt]()
        self.streams, self._closed = streams, closed
        self._is_ended = self._is_told = False
        self._closing = set[asyncio.Task[None]]()  # streams that nobody reads any more

    @property
    def left(self) -> int:
        """Nanoseconds until the deadline; NEVER: there is none. Negative: it is over."""
        deadline = self.request.deadline
        return NEVER if deadline == NEVER else deadline - loop_now()

    @property
    def open(self) -> list[Attempt]:
        """Those whose end the route has not heard of."""
        return [each for each in self.all if each.task and not each.is_taken]

    def start(self, target: Target, why: Why, words: str, **changes: Any) -> Attempt:
        """Ask a target. changes: fields of the request that differ for it."""
        attempt = self._add(target, why, words, changes)
        attempt.bill = Bill(self._check_closed)
        attempt.began = loop_now()
        attempt.task = asyncio.get_running_loop().create_task(self._run(attempt))
        attempt.task.add_done_callback(lambda task: self._over(attempt, task))
        return attempt

    def skip(self, target: Target, why: Why, words: str) -> None:
        """Note that a target is not asked."""
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
            attempt.bill.over()  # else its stream goes on
        elif attempt.is_forgotten:  # it spoke while it was being cancelled
            self._close_stream(attempt)
        self._check_closed()

    async def next(self, until: int = NEVER) -> Attempt | None:
        """The next attempt that ends, in the order in which they were begun where several have.
        None: it is `until`, or the deadline."""
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
        """Raises DeadlineError if the deadline is over."""
        if self.left <= 0:
            raise self.too_late()

    async def only(self) -> Attempt:
        """The attempt that ends next. Raises its error, or DeadlineError."""
        attempt = await self.next()
        if attempt is None:
            raise self.too_late()
        if attempt.error is not None:
            raise error_of(attempt)
        return attempt

    def too_late(self) -> DeadlineError:
        """The error of a request whose deadline is over."""
        asked = ", ".join([each.target.name for each in self.all if each.task]) or "nobody"
        return DeadlineError(f"the deadline was over before an answer came; asked: {asked}")

    def drop(self, attempt: Attempt, outcome: Outcome, verdict: str = "") -> None:
        """Cancel an attempt, or forget its answer. verdict: why, in words."""
        attempt.is_taken, attempt.outcome, attempt.verdict = True, outcome, verdict
        if attempt.task and not attempt.is_over:
            attempt.task.cancel()

    def cancel_others(self, winner: Attempt | None) -> None:
        """Nothing more will be asked, and only the winner's answer is wanted."""
        for attempt in self.all:
            if attempt is winner or attempt.task is None or attempt.is_forgotten:
                continue
            attempt.is_taken = attempt.is_forgotten = True
            if not attempt.is_over:
                attempt.task.cancel()
            self._close_stream(attempt)

    def end(self) -> None:
        """The caller has its answer or its error."""
        self._is_ended = True
        self._check_closed()

    def stream_over(self, attempt: Attempt, error: BaseException | None) -> None:
        """The winner's stream has been read to its end, or left."""
        attempt.ended, attempt.error = loop_now(), error
        assert attempt.bill
        attempt.bill.over()

    def _close_stream(self, attempt: Attempt) -> None:
        """Of a loser that has given its first piece."""
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
    """The error of an attempt that has no answer, as its caller is told."""
    assert attempt.error is not None
    if isinstance(attempt.error, asyncio.CancelledError):  # by somebody else: not this route
        return EngineError(f"{attempt.target.name} has cancelled the request")
    return attempt.error
