"""Route: a target that decides which other targets answer. Base of all kinds of routes."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar, Self

from headway.core.request import NEVER
from headway.errors import DeadlineError, PromptError, SettingError, first_line
from headway.routing.attempts import END, Attempt, Attempts, loop_now
from headway.routing.bill import Bill
from headway.routing.decision import Baseline, Basis, DecisionRow, Outcome
from headway.routing.request import RouteAnswer, RouteRequest
from headway.routing.targets.learned import Learned
from headway.routing.targets.target import Estimate, Target, TargetLoad

# Nanoseconds before its deadline at which a route decides with what is there, so that its caller,
# who may be another route, has the answer in time; but at most 1 / PART of the time that it has.
MARGIN, PART = 1_000_000, 10
CALLERS_FAULT = PromptError, SettingError  # no other target would answer either
Rows = Callable[[DecisionRow], object]


def forgotten(row: DecisionRow) -> None:
    """The `rows` of a route whose rows nobody wants."""


class Route(ABC):
    """Asks its targets until one answer is to be given.

    targets: from the cheapest to the largest. Rows compare with what the last one alone would have
    cost. rows: gets the DecisionRow of each request, in the event loop, once the cost of all its
    attempts is known: after the answer, where losers end later. name: for rows, and for routes that
    have this one as a target; empty: its kind in lower case.

    An async context manager, whose end awaits the rows. A route belongs to one event loop.
    Raises SettingError.
    """

    can_stream: ClassVar[bool] = False  # it need not see a whole answer to decide

    def __init__(
        self, targets: Sequence[Target], *, name: str = "", rows: Rows = forgotten
    ) -> None:
        self.targets, self.rows = tuple(targets), rows
        self.kind = type(self).__name__
        self.name = name or self.kind.lower()
        if not self.targets:
            raise SettingError(f"{self.name}: a route needs a target")
        names: dict[str, Target] = {}
        for each in self.targets:
            if names.setdefault(each.name, each) is not each:
                raise SettingError(f"{self.name}: two targets have the name {each.name!r}")
        self._numbers = count(1)
        self.open = set[_Decision]()  # whose rows are not written yet
        self.learned = Learned()

    @abstractmethod
    async def decide(self, attempts: Attempts) -> Attempt:
        """Ask targets through `attempts`; return the attempt whose answer is given.

        Raises the error of the request. Whatever is still open afterwards is cancelled.
        """

    @property
    def streams(self) -> bool:
        return self.can_stream and all(each.streams for each in self.targets)

    @property
    def load(self) -> TargetLoad:
        """The first target's wait, and what all targets have outstanding."""
        loads = [each.load for each in dict.fromkeys(self.targets)]
        return TargetLoad(sum([each.outstanding for each in loads]), loads[0].wait)

    def estimate(self, request: RouteRequest) -> Estimate:
        """Learned from the answers of this route."""
        return self.learned.estimate(1, 0)

    async def ask(self, request: RouteRequest, bill: Bill | None = None) -> RouteAnswer:
        """The answer. bill: of a route that has this one as a target.

        Raises what the targets raise, and DeadlineError. Cancelling the task cancels all attempts.
        """
        decision = _Decision(self, request, bill, streams=False)
        async with decision as attempts:
            won = await decision.decide()
        return replace(
            won.answer,
            id=attempts.request.id,
            target=won.answer.target or won.target.name,
        )

    async def stream(self, request: RouteRequest, bill: Bill | None = None) -> AsyncGenerator[Any]:
        """The answer piece by piece. Until the first piece another target may be chosen.

        Raises SettingError if the route must see whole answers, or if a target cannot stream.
        """
        if not self.can_stream:
            raise SettingError(
                f"{self.name}: {self.kind} judges whole answers, so it cannot stream: use ask"
            )
        if not self.streams:
            cannot = ", ".join([each.name for each in self.targets if not each.streams])
            raise SettingError(f"{self.name}: these targets cannot stream: {cannot}")
        decision = _Decision(self, request, bill, streams=True)
        async with decision as attempts:
            won = await decision.decide()
            async with aclosing(_pieces(won, attempts)) as pieces:
                async for piece in pieces:
                    yield piece

    async def settle(self) -> None:
        """Wait until the rows of all requests that have ended are written."""
        while ended := [each for each in self.open if each.is_ended]:
            await ended[0].closed.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.settle()

    def begun(self, request: RouteRequest) -> RouteRequest:
        """The request with an id, and its timeout as a deadline."""
        deadline = request.deadline
        if request.timeout:
            deadline = min(deadline, loop_now() + int(request.timeout * 1e9))
        id = request.id or f"{self.name}-{next(self._numbers)}"
        return replace(request, id=id, deadline=deadline, timeout=0.0)


async def _pieces(won: Attempt, attempts: Attempts) -> AsyncGenerator[Any]:
    """The winner's pieces, until the deadline."""
    assert won.pieces
    deadline = attempts.request.deadline
    limit = None if deadline == NEVER else deadline / 1e9
    error: BaseException | None = None
    try:
        async with aclosing(won.pieces) as pieces:
            piece = won.first
            while piece is not END:
                yield piece
                try:
                    async with asyncio.timeout_at(limit):
                        piece = await anext(pieces, END)
                except TimeoutError as late:
                    if isinstance(late, DeadlineError):
                        raise
                    raise attempts.too_late() from None
    except BaseException as caught:
        error = caught
        raise
    finally:
        attempts.stream_over(won, error)


class _Decision:
    """One request of a route, from its beginning until its row is written."""

    def __init__(
        self, route: Route, request: RouteRequest, bill: Bill | None, streams: bool
    ) -> None:
        self._route, self._bill = route, bill
        self._request, self._arrived = route.begun(request), loop_now()
        self._alone = route.targets[-1].estimate(self._request)
        earlier = replace(self._request, deadline=_earlier(self._request.deadline, self._arrived))
        self._attempts = Attempts(earlier, streams, self._close)
        self._winner: Attempt | None = None
        self._finished, self._error = NEVER, ""
        self._cancelled = Outcome.CANCELLED  # what it means for an attempt that it was cancelled
        self.closed = asyncio.Event()  # the row is written

    @property
    def is_ended(self) -> bool:
        """Whether its caller has an answer or an error."""
        return self._finished != NEVER

    async def __aenter__(self) -> Attempts:
        self._route.open.add(self)
        if self._bill:
            self._bill.later()
        return self._attempts

    async def decide(self) -> Attempt:
        self._attempts.check_time()
        self._winner = await self._route.decide(self._attempts)
        self._attempts.cancel_others(self._winner)
        return self._winner

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._finished = loop_now()
        self._cancelled = Outcome.LOST if self._winner else Outcome.CANCELLED
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._error = "the caller left"
        elif isinstance(error, DeadlineError):
            self._error, self._cancelled = first_line(error), Outcome.LATE
        elif error is not None:
            self._error = first_line(error)
        self._attempts.cancel_others(self._winner)
        self._attempts.end()

    def _close(self) -> None:
        """All costs are known."""
        row = self._row()
        # Soon, so that what the sink raises is not the caller's; and before the rows of the routes
        # above, which the bill may close.
        asyncio.get_running_loop().call_soon(self._tell, row)
        if self._winner:
            self._route.learned.see(1, row.e2e, row.nanoseconds, row.cost)
        if self._bill:
            self._bill.close(row.nanoseconds, row.cost, row.is_measured)

    def _tell(self, row: DecisionRow) -> None:
        try:
            self._route.rows(row)
        finally:
            self._route.open.discard(self)
            self.closed.set()

    def _row(self) -> DecisionRow:
        request, winner = self._request, self._winner
        if winner:
            winner.outcome = Outcome.WON
            if winner.error:  # of a stream, behind its first piece
                winner.outcome = winner.plain_outcome(Outcome.CANCELLED)
        every = self._attempts.all
        return DecisionRow(
            id=request.id,
            route=self._route.name,
            kind=self._route.kind,
            lane=request.lane,
            tenant=request.tenant,
            arrived=self._arrived,
            finished=self._finished,
            deadline=request.deadline,
            attempts=tuple([each.row(self._cancelled) for each in every]),
            winner=every.index(winner) if winner else -1,
            error=self._error,
            accepted=winner is not None and winner.answer.accepted,
            baseline=self._baseline(),
        )

    def _baseline(self) -> Baseline:
        last = self._route.targets[-1]
        for each in self._attempts.all:
            if each.target is last and each.answered and each.bill:
                basis = Basis.MEASURED if each.bill.is_measured else Basis.ESTIMATED
                span = each.ended - each.began
                return Baseline(last.name, each.bill.nanoseconds, each.bill.cost, span, basis)
        alone = self._alone
        if not alone.is_known:
            return Baseline(last.name)
        return Baseline(last.name, alone.nanoseconds, alone.cost, alone.likely, Basis.ESTIMATED)


def _earlier(deadline: int, now: int) -> int:
    """When a route decides."""
    return deadline if deadline == NEVER else deadline - min(MARGIN, max(0, deadline - now) // PART)
