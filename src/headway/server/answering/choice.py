"""One choice of a call while it is being answered: events in; text and log-probabilities out."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from headway.answer import Answer, Delta
from headway.core.batch import Event
from headway.core.request import Finish
from headway.executor.torch.sampling.logprobs import LogprobColumns
from headway.server.protocol import response as whole
from headway.server.protocol.logprobs import Scores, chat_logprobs, text_logprobs
from headway.text_stream import TextStream

REASONS = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.COMPUTED: "length"}


class TokenTexts(Protocol):
    """The text of tokens, special tokens spelled out."""

    def spell(self, id: int) -> str:
        """One token's own text."""
        ...

    def verbatim(self, ids: Sequence[int]) -> str:
        """The text of several."""
        ...


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
        texts: TokenTexts,
        echo: str = "",
        skip_special: bool = True,
        leader: "Choice | None" = None,
    ) -> None:
        self.answer, self.leader = answer, leader
        self.begun = False  # something of it was given out
        self._chat, self._spell = chat, texts.spell
        self.scores = answer.options.logprobs >= 0  # they are said, too
        self.echo = echo if answer.options.echo else None  # None: the text begins with the answer
        self._offset = 0  # characters of the tokens whose scores were given out
        if not skip_special:
            options = answer.options
            answer.text = TextStream(texts.verbatim, options.stop, options.min_tokens)

    def hear(self, event: Event) -> Delta:
        return self.answer.take(event)

    def said(self, delta: Delta) -> Iterator[Said]:
        """For a stream; the scores of a prompt that is echoed in parts, each made when it is asked
        for. Scores of tokens whose text is held back come with the tokens, and are given up.
        """
        text, tokens = delta.text, self._without_end(delta.tokens, delta.finish)
        prompt: Sequence[int] = ()
        if self.echo is not None and not self.begun:
            text, prompt = self.echo + text, self.answer.request.prompt
        self.begun = True
        finish = REASONS.get(delta.finish, "")
        if not self.scores:
            return iter([Said(text, finish, None)])
        new = self._scored(prompt, tokens)
        self.answer.logprobs.clear()
        return self._parts(text, finish, new)

    def _parts(self, text: str, finish: str, new: Scores) -> Iterator[Said]:
        """The text comes with the first, and the end with the last."""
        left = len(new.tokens)
        for part in new.parts():
            left -= len(part.tokens)
            yield Said(text, "" if left else finish, self._logprobs(part))
            text = ""

    def whole(self) -> whole.Said:
        """When it has ended."""
        answer = self.answer
        tokens = self._without_end(answer.tokens, answer.finish)
        prompt: Sequence[int] = () if self.echo is None else answer.request.prompt
        scores = self._scored(prompt, tokens) if self.scores else None
        return whole.Said((self.echo or "") + answer.text.text, REASONS[answer.finish], scores)

    def _without_end(self, tokens: Sequence[int], finish: Finish) -> Sequence[int]:
        """A stop token is not in the text, and so not among the text's scores."""
        stops = self.answer.request.sampling.stop_tokens
        ended = finish is Finish.STOP and not self.answer.stopped
        return tokens[:-1] if ended and tokens and tokens[-1] in stops else tokens

    def _scored(self, prompt: Sequence[int], tokens: Sequence[int]) -> Scores:
        """Of the prompt and these tokens, whose scores are the first that were not given up."""
        scores, rivals = LogprobColumns(), self.answer.options.logprobs
        if prompt:
            scores.extend((self.leader or self).answer.prompt_logprobs)
        scores.extend(self.answer.logprobs[: len(tokens)])
        return Scores((*prompt, *tokens), scores, self._spell, rivals)

    def _logprobs(self, part: Scores) -> dict[str, Any]:
        if self._chat:
            return chat_logprobs(part)
        said = text_logprobs(part, self._offset)
        self._offset += sum(map(len, said["tokens"]))
        return said
