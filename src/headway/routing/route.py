"""Route: a target that decides which of its own targets answers. Base of all kinds of routes."""

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

# A route decides MARGIN nanoseconds before its deadline, with the answers so far, so that its
# caller (perhaps another route) gets the answer in time. At most 1 / PART of its time is kept back.
MARGIN, PART = 1_000_000, 10
CALLERS_FAULT = PromptError, SettingError  # no other target would answer either
Rows = Callable[[DecisionRow], object]


def forgotten(row: DecisionRow) -> None:
    """The default `rows` of a route: drops every row."""


class Route(ABC):
    """Asks its targets until it has an answer to give.

    targets: from the cheapest to the largest. Rows compare the cost with that of asking the last
    target alone. rows: called in the event loop with the DecisionRow of each request, once the
    costs of all its attempts are known. That is after the answer if losers end later. name: for
    rows, and for routes that have this one as a target; empty: the class name in lower case.

    An async context manager: leaving it waits for the rows. A route belongs to one event loop.
    Raises SettingError.
    """

    can_stream: ClassVar[bool] = False  # True: it can decide without seeing a whole answer

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
        self.open = set[_Decision]()  # decisions whose rows are not written yet
        self.learned = Learned()

    @abstractmethod
    async def decide(self, attempts: Attempts) -> Attempt:
        """Ask targets through `attempts`, and return the attempt whose answer is given.

        Raises the error of the request. Attempts still open afterwards are cancelled.
        """

    @property
    def streams(self) -> bool:
        return self.can_stream and all(each.streams for each in self.targets)

    @property
    def load(self) -> TargetLoad:
        """The outstanding requests of all targets, and the first target's wait."""
        loads = [each.load for each in dict.fromkeys(self.targets)]
        return TargetLoad(sum([each.outstanding for each in loads]), loads[0].wait)

    def estimate(self, request: RouteRequest) -> Estimate:
        """The estimate learned from this route's own answers."""
        return self.learned.estimate(1, 0)

    async def ask(self, request: RouteRequest, bill: Bill | None = None) -> RouteAnswer:
        """Return the answer. bill: given by a route that has this one as a target.

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
        """Yield the answer piece by piece. Before the first piece, the route may change targets.

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
        """Wait until the rows of all ended requests are written."""
        while ended := [each for each in self.open if each.is_ended]:
            await ended[0].closed.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.settle()

    def begun(self, request: RouteRequest) -> RouteRequest:
        """The request with an id, and with its timeout turned into a deadline."""
        deadline = request.deadline
        if request.timeout:
            deadline = min(deadline, loop_now() + int(request.timeout * 1e9))
        id = request.id or f"{self.name}-{next(self._numbers)}"
        return replace(request, id=id, deadline=deadline, timeout=0.0)


async def _pieces(won: Attempt, attempts: Attempts) -> AsyncGenerator[Any]:
    """Yield the winner's pieces. Raises DeadlineError once the deadline has passed."""
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
        self._cancelled = Outcome.CANCELLED  # outcome of cancelled attempts
        self.closed = asyncio.Event()  # set once the row is written

    @property
    def is_ended(self) -> bool:
        """Whether the caller has an answer or an error."""
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
        """Close the request, now that all costs are known."""
        row = self._row()
        # call_soon keeps an error of the sink away from the caller. It comes before the bill, which
        # may close the routes above: so this row comes before theirs.
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
            if winner.error:  # of a stream, after its first piece
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
    """The time when a route must decide: a little before its deadline."""
    return deadline if deadline == NEVER else deadline - min(MARGIN, max(0, deadline - now) // PART)
