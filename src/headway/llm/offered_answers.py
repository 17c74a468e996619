"""OfferedAnswers: single requests to a model, whose events go to a Caller. For pipelines."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headway.core.batch import Event
from headway.core.policies.policies import Policies
from headway.pipelines.graph import Chainable

if TYPE_CHECKING:
    from headway.core.ledger import RequestRow
    from headway.live.callers import Caller
    from headway.live.engine import LiveEngine
    from headway.llm.answer import Answer, Completion, Delta
    from headway.llm.options import Options
    from headway.llm.request_builder import Ask, RequestBuilder


class OfferedAnswers(Chainable):
    """Single requests whose events go to a Caller. LLM's base; LLM sets the attributes."""

    policies: Policies
    _builder: "RequestBuilder"
    _engine: "LiveEngine"
    _rows: "dict[str, RequestRow | None]"
    _hear: "Callable[[Answer, Event], Delta]"
    _completed: "Callable[[Answer], Completion]"
    _stream_answer: "Callable[[Ask, Options], Answer]"

    def check(self, options: "Options") -> None:
        """Refuse options that cannot be obeyed. Raises what RequestBuilder.check raises."""
        self._builder.check(options)

    def prepare(self, prompt: "Ask", options: "Options") -> "Answer":
        """Prepare the answer to a prompt and submit nothing. Raises SettingError, PromptError."""
        return self._stream_answer(prompt, options)

    def offer(self, answers: Sequence["Answer"], caller: "Caller") -> None:
        """Submit these answers together. The caller gets their events. Raises EngineDownError."""
        self._rows.update(dict.fromkeys([answer.request.id for answer in answers]))
        try:
            self._engine.offer([answer.request for answer in answers], caller)
        except BaseException:
            for answer in answers:
                self._rows.pop(answer.request.id, None)
            raise

    def drop(self, ids: Iterable[str]) -> None:
        """Cancel the requests with these ids."""
        self._engine.cancel(ids)

    @property
    def drain(self) -> float:
        """Prompt tokens that start per second while requests wait; 0: not known yet."""
        return next(iter(self._engine.load.lanes.values())).drain

    def hear(self, answer: "Answer", event: Event) -> "Delta":
        """Add an event to its answer. Raises the error that has ended the request."""
        return self._hear(answer, event)

    def completed(self, answer: "Answer") -> "Completion":
        """The whole answer, once it has ended. To be called only once."""
        return self._completed(answer)
