"""One choice of a call while it is being answered: events in; text and log-probabilities out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from headway.answer import Answer, Delta
from headway.core.batch import Event, Logprob
from headway.core.request import Finish
from headway.server.protocol.logprobs import chat_logprobs, text_logprobs
from headway.server.texts import Texts
from headway.text import TextStream

REASONS = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.COMPUTED: "length"}


class Said(NamedTuple):
    """What is new of it."""

    text: str
    finish: str  # OpenAI's word; empty: not yet
    logprobs: dict[str, Any] | None


class Choice:
    """answer: its text and tokens. echo: the prompt's text, where that comes before.

    leader: the first choice of the same prompt, which alone is told the prompt's scores; None: it
    is that one.
    """

    def __init__(
        self,
        chat: bool,
        answer: Answer,
        texts: Texts,
        echo: str = "",
        skip_special: bool = True,
        leader: "Choice | None" = None,
    ) -> None:
        self.answer, self.leader = answer, leader
        self.begun = False  # something of it was given out
        self._chat, self._spell = chat, texts.spell
        self._scores = answer.options.logprobs >= 0
        self.echo = echo if answer.options.echo else None  # None: the text begins with the answer
        self._offset = 0  # characters of the tokens whose scores were given out
        if not skip_special:
            options = answer.options
            answer.text = TextStream(texts.verbatim, options.stop, options.min_tokens)

    def hear(self, event: Event) -> Delta:
        return self.answer.take(event)

    def said(self, delta: Delta) -> Said:
        """For a stream. Scores of tokens whose text is held back come with the tokens."""
        text, tokens = delta.text, self._without_end(delta.tokens, delta.finish)
        prompt: Sequence[int] = ()
        if self.echo is not None and not self.begun:
            text, prompt = self.echo + text, self.answer.request.prompt
        heard = len(self.answer.tokens) - len(delta.tokens)
        scores = self.answer.logprobs[heard : heard + len(tokens)]
        logprobs = self._logprobs(prompt, tokens, scores) if self._scores else None
        self.begun = True
        return Said(text, REASONS.get(delta.finish, ""), logprobs)

    def whole(self) -> Said:
        """When it has ended."""
        answer = self.answer
        tokens = self._without_end(answer.tokens, answer.finish)
        prompt: Sequence[int] = () if self.echo is None else answer.request.prompt
        scores = answer.logprobs[: len(tokens)]
        logprobs = self._logprobs(prompt, tokens, scores) if self._scores else None
        return Said((self.echo or "") + answer.text.text, REASONS[answer.finish], logprobs)

    def _without_end(self, tokens: Sequence[int], finish: Finish) -> Sequence[int]:
        """A stop token is not in the text, and so not among the text's scores."""
        stops = self.answer.request.sampling.stop_tokens
        ended = finish is Finish.STOP and not self.answer.stopped
        return tokens[:-1] if ended and tokens and tokens[-1] in stops else tokens

    def _logprobs(
        self, prompt: Sequence[int], tokens: Sequence[int], scores: Sequence[Logprob]
    ) -> dict[str, Any]:
        if self._chat:
            return chat_logprobs(tokens, scores, self._spell)
        before: list[Logprob | None] = []
        if prompt:
            before = [None, *(self.leader or self).answer.prompt_logprobs]
        said = text_logprobs([*prompt, *tokens], [*before, *scores], self._spell, self._offset)
        self._offset += sum(map(len, said["tokens"]))
        return said
