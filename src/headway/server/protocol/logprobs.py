"""Log-probabilities as JSON, in OpenAI's two forms, written piece by piece.

Those of a long prompt are megabytes of JSON. No piece of it holds the event loop for more than a
few milliseconds, and each can be made when the one before it was sent.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from headway.core.batch import Logprob, Logprobs

LEAST = -9999.0  # JSON has no infinity; OpenAI's own stand-in for it
UNFINISHED = "\ufffd"  # a token that is not whole characters
PIECE = 1_000  # log-probabilities that are written at once
COLUMNS = "tokens", "token_logprobs", "top_logprobs", "text_offset"

Spell = Callable[[int], str]  # a token's own text, special tokens too


class Scores(NamedTuple):
    """The scores of a text's tokens. The first token of a prompt has none: nothing came before."""

    tokens: Sequence[int]
    scores: Logprobs  # one for each token, or for each but the first
    spell: Spell
    rivals: int = 0  # that each may have

    @property
    def texts(self) -> list[str]:
        return [self.spell(token) for token in self.tokens]

    @property
    def each(self) -> list[Logprob | None]:
        """One for each token; None for a prompt's first."""
        return [*[None] * (len(self.tokens) - len(self.scores)), *self.scores]

    def parts(self) -> Iterator["Scores"]:
        """Parts of as many tokens as are written at once; at least one part, perhaps empty."""
        step, first = max(1, PIECE // (1 + self.rivals)), len(self.tokens) - len(self.scores)
        for begin in range(0, max(1, len(self.tokens)), step):
            end = begin + step
            scores = self.scores[max(0, begin - first) : end - first]
            yield self._replace(tokens=self.tokens[begin:end], scores=scores)


def pieces(chat: bool, scores: Scores) -> Iterator[str]:
    """The JSON of all scores, in pieces. chat: the form, of a chat or of a completion."""
    if chat:
        yield '{"content":['
        yield from _joined(map(_content, scores.parts()))
        yield '],"refusal":null}'
        return
    for at, name in enumerate(COLUMNS):
        yield f'{"]," if at else "{"}"{name}":['
        yield from _joined(_columns(scores, name))
    yield "]}"


def _joined(parts: Iterable[list[Any]]) -> Iterator[str]:
    for at, part in enumerate(parts):
        yield ("," if at else "") + json.dumps(part, separators=(",", ":"))[1:-1]


def _columns(scores: Scores, name: str) -> Iterator[list[Any]]:
    offset = 0
    for part in scores.parts():
        yield _column(name, part, offset)
        offset += sum(map(len, part.texts))


def chat_logprobs(scores: Scores) -> dict[str, Any]:
    """The form of a chat: a message's tokens, each with its likeliest rivals."""
    return {"content": _content(scores), "refusal": None}


def text_logprobs(scores: Scores, offset: int) -> dict[str, Any]:
    """The form of a completion; a prompt's first token has null, as OpenAI has it.

    offset: characters of the text before these tokens. A token that is part of a character counts
    as one.
    """
    return {name: _column(name, scores, offset) for name in COLUMNS}


def _column(name: str, scores: Scores, offset: int) -> list[Any]:
    texts = scores.texts
    match name:
        case "tokens":
            return texts
        case "token_logprobs":
            return [max(each.sampled, LEAST) if each else None for each in scores.each]
        case "top_logprobs":
            both = zip(texts, scores.each, strict=True)
            return [_top(text, each, scores.spell) if each else None for text, each in both]
        case _:
            return [*accumulate(map(len, texts), initial=offset)][:-1]


def _content(scores: Scores) -> list[dict[str, Any]]:
    content = []
    for text, score in zip(scores.texts, scores.scores, strict=True):
        top = [_entry(scores.spell(id), value) for id, value in score.top]
        content.append({**_entry(text, score.sampled), "top_logprobs": top})
    return content


def _top(text: str, score: Logprob, spell: Spell) -> dict[str, float]:
    """The likeliest rivals by their texts, the likeliest first; of two with the same text the
    likelier. The token itself comes last if it is none of them, as OpenAI has it.
    """
    top = dict[str, float]()
    for id, value in score.top:
        top.setdefault(spell(id), max(value, LEAST))
    top.setdefault(text, max(score.sampled, LEAST))
    return top


def _entry(text: str, value: float) -> dict[str, Any]:
    """Bytes are given only for tokens of whole characters."""
    known = None if UNFINISHED in text else list(text.encode())
    return {"token": text, "logprob": max(value, LEAST), "bytes": known}
