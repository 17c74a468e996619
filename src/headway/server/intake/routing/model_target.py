"""ModelTarget: one of the server's own models as a target of its routes."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from math import nan

from headway.core.request import NEVER
from headway.routing.bill import Bill
from headway.routing.price import Price
from headway.routing.request import RouteAnswer, RouteRequest
from headway.routing.targets.learned import Learned
from headway.routing.targets.llm import CHARACTERS, load_of
from headway.routing.targets.target import Estimate, TargetLoad
from headway.server import clock
from headway.server.answering.call import DROPPED, Call
from headway.server.engine.handle import EngineState
from headway.server.intake.model import Model
from headway.server.intake.replicas import Replicas
from headway.server.intake.routing.accounts import Account, Accounts
from headway.server.intake.routing.asked import Asked
from headway.server.intake.routing.failures import failure
from headway.server.protocol.problem import Problem

# For a model that is down or loading: it sorts last, and cannot answer within any deadline.
AWAY = Estimate(likely=NEVER - 1, surely=NEVER + 1)


class AttemptClient:
    """The client of an attempt is the route. The route's own client may end all its attempts."""

    def __init__(self) -> None:
        self.call: Call | None = None

    def preparing(self) -> nullcontext[None]:
        """An empty context: the route cancels the preparing task itself."""
        return nullcontext()

    def end(self, problem: Problem) -> None:
        """End the call with this problem, if there is one."""
        if self.call:
            self.call.end(problem)


class ModelTarget:
    """Asks through Model.call, so each attempt is an ordinary call in its lane: admitted or
    refused, charged to its key, with its own ledger row. A RouteRequest's input is an Asked. An
    answer's value is the Call. A stream has one piece, the call's Account.
    """

    streams = True

    def __init__(
        self, replicas: Replicas, name: str, accounts: Mapping[Model, Accounts], price: Price
    ) -> None:
        self.replicas, self.name = replicas, name
        self._accounts, self._price = accounts, price
        self._outstanding = 0
        self._learned = Learned()

    @property
    def load(self) -> TargetLoad:
        """The load after the engine's latest step; its wait is that of the slowest lane."""
        engine = self.replicas.least_loaded.engine
        load = engine.load
        if engine.state is not EngineState.READY or not load.lanes:
            return TargetLoad(self._outstanding, NEVER)
        loads = [load_of(line, load, self._outstanding) for line in load.lanes.values()]
        outstanding = sum([line.waiting for line in load.lanes.values()]) + load.running
        return TargetLoad(max(outstanding, self._outstanding), max([each.wait for each in loads]))

    def estimate(self, request: RouteRequest) -> Estimate:
        """The estimate: the wait in the lane's line plus the prefill, and a straight-line fit of
        recent answer times over generated tokens."""
        engine, asked = self.replicas.least_loaded.engine, _asked(request)
        load = engine.load
        if engine.state is not EngineState.READY or request.lane not in load.lanes:
            return AWAY
        expected = asked.routed.expected or self._learned.size
        if request.options.max_tokens is not None:
            expected = min(expected, request.options.max_tokens)
        waits = load_of(load.lanes[request.lane], load, 0).wait
        waits += load.prefill * (asked.tokens or asked.size // CHARACTERS)
        return self._learned.estimate(expected, waits)

    async def ask(self, request: RouteRequest, bill: Bill) -> RouteAnswer:
        """The model's whole answer. Raises as Target.ask does; the cause is the model's Problem."""
        asked = _asked(request)
        with self._counted():
            call, _ = await self._enter(request, bill, stream=False)
            try:
                await call.wait()
                _check(call, asked)
            finally:
                call.end(_dropped())
        self._learn(call, bill)
        first = next(iter(call.choices.values())).answer
        scores = [each.sampled for each in first.logprobs]
        mean = sum(scores) / len(scores) if scores else nan
        return RouteAnswer(call, first.text.text, mean, call.tokens[1])

    async def stream(self, request: RouteRequest, bill: Bill) -> AsyncGenerator[Account]:
        """Yield the call's account once it has its first token. The stream ends with the call."""
        asked = _asked(request)
        with self._counted():
            call, account = await self._enter(request, bill, stream=True)
            try:
                await call.wait()
                _check(call, asked)
                yield account
                await account.over.wait()
                _check(call, asked)
            finally:
                call.end(_dropped())
        self._learn(call, bill)

    async def _enter(self, request: RouteRequest, bill: Bill, stream: bool) -> tuple[Call, Account]:
        asked = _asked(request)
        model = self.replicas.pick(asked.routed.arrival)
        routed = asked.attempt(request, model, self.name, stream, clock.now())
        try:
            call = await model.call(routed, AttemptClient(), asked.size)
        except Problem as problem:
            raise failure(problem, asked) from problem
        return call, self._accounts[model].open(call, bill, self._price)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._outstanding += 1
        try:
            yield
        finally:
            self._outstanding -= 1

    def _learn(self, call: Call, bill: Bill) -> None:
        rows = call.rows.values()
        began = [row.first_token for row in rows if row.first_token != NEVER]
        if began and bill.is_closed:
            spent = max([row.finished for row in rows]) - min(began)
            self._learned.see(call.tokens[1], spent, bill.nanoseconds, bill.cost)


def _asked(request: RouteRequest) -> Asked:
    assert isinstance(request.input, Asked)
    return request.input


def _check(call: Call, asked: Asked) -> None:
    """Raises the error of a call that ended without an answer."""
    if call.problem:
        raise failure(call.problem, asked) from call.problem


def _dropped() -> Problem:
    return Problem(499, "another answer was taken, or the client has gone", code=DROPPED)
