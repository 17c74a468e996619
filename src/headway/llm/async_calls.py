"""AsyncCalls: generate and stream for asyncio, for a model behind an engine."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from headway.core.batch import Event
from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.errors import EngineDownError, RefusedError
from headway.live.account import Account, settle
from headway.live.engine import LiveEngine
from headway.llm.answer import Answer, Completion, Delta
from headway.llm.options import Options, integer
from headway.llm.request_builder import Ask, RequestBuilder


class AsyncCalls:
    """Single requests for asyncio tasks, any number at once. LLM's base; LLM sets the
    attributes."""

    _builder: RequestBuilder
    _engine: LiveEngine
    _rows: dict[str, RequestRow | None]
    _hear: Callable[[Answer, Event], Delta]
    _fitting: Callable[[Ask, Options], tuple[int, ...]]
    _stream_answer: Callable[[Ask, Options], Answer]

    async def agenerate(
        self,
        prompt: Ask,
        options: Options = Options(),
        *,
        end_by: int = NEVER,
        account: Account | None = None,
    ) -> Completion:
        """Answer one prompt. Cancelling the task cancels the request.

        end_by: the latest time to end, in nanoseconds of time.monotonic_ns(); after it the request
        is dropped (DeadlineError). account: told the ledger row, even if the task was cancelled.
        Raises what astream raises.
        """
        call = await self._begun(prompt, options, end_by, account)
        async with aclosing(call.deltas()) as deltas:
            async for _ in deltas:
                pass
        return call.answer.completion(call.row)

    async def astream(
        self,
        prompt: Ask,
        options: Options = Options(),
        *,
        end_by: int = NEVER,
        account: Account | None = None,
    ) -> AsyncGenerator[Delta]:
        """Yield deltas like stream(), for asyncio. end_by, account: as in agenerate().

        Raises RefusedError, PromptError, SettingError, GrammarCheckError, DeadlineError or
        EngineError.
        """
        call = await self._begun(prompt, options, end_by, account)
        async with aclosing(call.deltas()) as deltas:
            async for delta in deltas:
                yield delta

    async def _begun(
        self, prompt: Ask, options: Options, end_by: int, account: Account | None
    ) -> "_Call":
        ids = await asyncio.to_thread(self._checked, prompt, options)
        answer = self._stream_answer(ids, options)
        answer.request = replace(answer.request, end_by=integer("end_by", end_by))
        return _Call(self._engine, self._rows, self._hear, answer, account)

    def _checked(self, prompt: Ask, options: Options) -> tuple[int, ...]:
        """Check the options and tokenize the prompt. Long texts take seconds, so this runs beside
        the event loop."""
        self._builder.check(options)
        return self._fitting(prompt, options)


class _Call:
    """One request until it has ended. The first call of `_end` takes its ledger row."""

    def __init__(
        self,
        engine: LiveEngine,
        rows: dict[str, RequestRow | None],
        hear: Callable[[Answer, Event], Delta],
        answer: Answer,
        account: Account | None,
    ) -> None:
        self._engine, self._rows, self._hear = engine, rows, hear
        self.answer, self._account = answer, account
        self.row: RequestRow | None = None

    async def deltas(self) -> AsyncGenerator[Delta]:
        if self._account:
            self._account.begun()
        self._rows[self.answer.request.id] = None
        try:
            async with aclosing(self._engine.stream(self.answer.request, self._end)) as events:
                async for event in events:
                    yield self._hear(self.answer, event)
        except (RefusedError, EngineDownError):
            self._end()  # if the request was never accepted; otherwise this does nothing
            raise

    def _end(self) -> None:
        """Take the row and settle the account. Called from any thread; later calls do nothing."""
        try:
            self.row = self._rows.pop(self.answer.request.id)
        except KeyError:
            return
        settle(self._account, self.row)
