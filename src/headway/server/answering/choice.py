"""Choice: one choice of a call. Its events go in, text and log-probabilities come out."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from headway.core.batch import Event
from headway.core.request import Finish
from headway.executor.logprobs import LogprobColumns
from headway.llm.answer import Answer, Delta
from headway.server.protocol.logprobs import Scores, chat_logprobs, text_logprobs
from headway.server.protocol.response import FinishedChoice
from headway.text.text_stream import TextStream

REASONS = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.COMPUTED: "length"}


class TokenTexts(Protocol):
    """The text of tokens, with special tokens spelled out."""

    @property
    def special(self) -> frozenset[int]:
        """The ids of the special tokens."""
        ...

    def spell(self, id: int) -> str:
        """One token's own text."""
        ...

    def verbatim(self, ids: Sequence[int]) -> str:
        """The text of several tokens."""
        ...


class Change(NamedTuple):
    """What a choice adds to its stream: one chunk."""

    text: str
    finish: str  # OpenAI's finish reason; empty: not finished yet
    logprobs: dict[str, Any] | None


class Choice:
    """One choice of a call.

    answer: the text and tokens. echo: the prompt's text, if it is returned as well. leader: the
    first choice of the same prompt, the only one to get the prompt's scores; None: this is it.
    """

    def __init__(
        self,
        chat: bool,
        answer: Answer,
        texts: TokenTexts,
        echo: str = "",
        skip_special: bool = True,
        leader: "Choice | None" = None,
    ) -> None:
        self.answer, self.leader = answer, leader
        self.begun = False  # whether a part of it was sent
        self._chat, self._spell = chat, texts.spell
        self._hidden = texts.special if skip_special else frozenset[int]()
        self.scores = answer.options.logprobs >= 0  # log-probabilities are returned
        self.echo = echo if answer.options.echo else None  # None: the prompt is not returned
        self._offset = 0  # characters of the tokens whose scores were already sent
        if not skip_special:
            options = answer.options
            prompt = answer.request.prompt
            answer.text = TextStream(texts.verbatim, options.stop, options.min_tokens, prompt)

    def hear(self, event: Event) -> Delta:
        """Take an event of this choice and return what it adds to the answer."""
        return self.answer.take(event)

    def changes(self, delta: Delta) -> Iterator[Change]:
        """The chunks of a stream for this delta. An echoed prompt's scores come in parts, each made
        when it is taken. Scores are sent with their tokens, even while the tokens' text is held
        back, and are then dropped.
        """
        text, tokens = delta.text, self._without_end(delta.tokens, delta.finish)
        prompt: Sequence[int] = ()
        if self.echo is not None and not self.begun:
            text, prompt = self.echo + text, self.answer.request.prompt
        self.begun = True
        finish = REASONS.get(delta.finish, "")
        if not self.scores:
            return iter([Change(text, finish, None)])
        new = self._scored(prompt, tokens)
        self.answer.logprobs.clear()
        return self._parts(text, finish, new)

    def _parts(self, text: str, finish: str, new: Scores) -> Iterator[Change]:
        """The chunks of these scores: the first has the text, the last the finish reason."""
        left = len(new.tokens)
        for part in new.parts():
            left -= len(part.tokens)
            yield Change(text, "" if left else finish, self._logprobs(part))
            text = ""

    def finished(self) -> FinishedChoice:
        """The whole of a choice that has ended."""
        answer = self.answer
        tokens = self._without_end(answer.tokens, answer.finish)
        prompt: Sequence[int] = () if self.echo is None else answer.request.prompt
        scores = self._scored(prompt, tokens) if self.scores else None
        return FinishedChoice((self.echo or "") + answer.text.text, REASONS[answer.finish], scores)

    def _without_end(self, tokens: Sequence[int], finish: Finish) -> Sequence[int]:
        """The tokens without a final stop token, which is not in the text either."""
        stops = self.answer.request.sampling.stop_tokens
        ended = finish is Finish.STOP and not self.answer.stopped
        return tokens[:-1] if ended and tokens and tokens[-1] in stops else tokens

    def _scored(self, prompt: Sequence[int], tokens: Sequence[int]) -> Scores:
        """The scores of the prompt and these tokens. The answer's first scores are the tokens'."""
        scores, rivals = LogprobColumns(), self.answer.options.logprobs
        if prompt:
            scores.extend((self.leader or self).answer.prompt_logprobs)
        scores.extend(self.answer.logprobs[: len(tokens)])
        return Scores((*prompt, *tokens), scores, self._spell, rivals, self._hidden)

    def _logprobs(self, part: Scores) -> dict[str, Any]:
        if self._chat:
            return chat_logprobs(part)
        part_logprobs = text_logprobs(part, self._offset)
        self._offset += sum(part.widths)
        return part_logprobs
