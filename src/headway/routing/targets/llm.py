"""LLMTarget: a model in this process."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from math import nan
from typing import TYPE_CHECKING

from headway.core.admission import foreseen, wait
from headway.core.load import LaneLoad, Load
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.llm.options import Options
from headway.routing.attempts import loop_now
from headway.routing.bill import Bill, EngineAccount
from headway.routing.price import DEVICE_TIME, Price
from headway.routing.request import RouteAnswer, RouteRequest
from headway.routing.targets.learned import Learned
from headway.routing.targets.remote_body import is_chat
from headway.routing.targets.target import Estimate, TargetLoad

if TYPE_CHECKING:
    from headway.llm.answer import Completion, Delta
    from headway.llm.llm import LLM

CHARACTERS = 4  # per token, roughly, while a prompt's token count is not known


class LLMTarget:
    """Asks an LLM. The device time comes from the ledger.

    A request's `lane` is ignored, because an LLM has one lane.
    """

    streams = True

    def __init__(self, llm: "LLM", name: str, *, price: Price = DEVICE_TIME) -> None:
        self.name, self._llm, self._price = name, llm, price
        self._outstanding = 0  # asked through this target; the engine's load may be a step old
        self._learned = Learned()

    @property
    def load(self) -> TargetLoad:
        """The load as of the engine's latest step. The wait is its first-token estimate if it has a
        cost model, else it comes from the recent drain rate."""
        load = self._llm.load
        (line,) = load.lanes.values()
        return load_of(line, load, self._outstanding)

    def estimate(self, request: RouteRequest) -> Estimate:
        """The load's wait and the prompt's prefill, plus a line through the recent answers over
        their generated tokens."""
        options, size = request.options, self._learned.size
        expected = options.expected_tokens or size
        if options.max_tokens is not None:
            expected = min(expected, options.max_tokens)
        is_text = isinstance(request.input, str) or is_chat(request)
        prompt = request.length // CHARACTERS if is_text else request.length
        waits = self.load.wait + self._llm.load.prefill * prompt
        return self._learned.estimate(expected, waits)

    async def ask(self, request: RouteRequest, bill: Bill) -> RouteAnswer:
        """Return the answer; its value is a Completion. Raises what LLM.agenerate raises, and
        SettingError for n > 1 or echo."""
        self._check(request.options)
        self._outstanding += 1
        try:
            completion = await self._llm.agenerate(
                request.input,
                request.options,
                end_by=request.deadline,
                account=EngineAccount(bill, self._price),
            )
        finally:
            self._outstanding -= 1
        row = completion.row
        if row.first_token != NEVER:
            self._learn(row.generated, row.finished - row.first_token, bill)
        return answered(completion)

    def _learn(self, generated: int, spent: int, bill: Bill) -> None:
        """Learn from an answer. spent: nanoseconds from its first token to its end."""
        assert bill.is_closed, "an account is told before the caller"
        self._learned.see(generated, spent, bill.nanoseconds, bill.cost)

    async def stream(self, request: RouteRequest, bill: Bill) -> "AsyncGenerator[Delta]":
        """Yield Deltas. Raises what LLM.astream raises, and SettingError for n > 1 or echo."""
        self._check(request.options)
        account = EngineAccount(bill, self._price)
        generated, first = 0, NEVER
        self._outstanding += 1
        try:
            deltas = self._llm.astream(
                request.input, request.options, end_by=request.deadline, account=account
            )
            async with aclosing(deltas):
                async for delta in deltas:
                    generated += len(delta.tokens)
                    first = min(first, loop_now())
                    yield delta
            self._learn(generated, loop_now() - first, bill)
        finally:
            self._outstanding -= 1

    def _check(self, options: Options) -> None:
        if options.n > 1 or options.echo:
            raise SettingError(
                "a route asks for one answer without an echo; an Ensemble with a target listed "
                "several times asks for several"
            )


def load_of(line: LaneLoad, load: Load, outstanding: int) -> TargetLoad:
    """The load of an engine as a new request of this lane would find it. outstanding: requests that
    the caller has sent to it, by its own count."""
    waits = wait(line, load) if line.eta == NEVER else foreseen(line, load)
    return TargetLoad(max(outstanding, line.waiting + load.running), waits)


def answered(completion: "Completion") -> RouteAnswer:
    """A completion as a route's answer."""
    scores = [each.sampled for each in completion.logprobs]
    mean = sum(scores) / len(scores) if scores else nan
    return RouteAnswer(completion, completion.text, mean, len(completion.tokens))
