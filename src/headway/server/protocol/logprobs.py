"""Log-probabilities as JSON, in OpenAI's two forms, written piece by piece.

A long prompt's log-probabilities are megabytes of JSON. No piece holds the event loop for more than
a few milliseconds, and each can be made after the previous one was sent.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from headway.core.batch import Logprob, Logprobs

LEAST = -9999.0  # stands for minus infinity, which JSON lacks; OpenAI uses the same value
UNFINISHED = "\ufffd"  # in the text of a token that is not whole characters
PIECE = 1_000  # log-probabilities written at once
COLUMNS = "tokens", "token_logprobs", "top_logprobs", "text_offset"

Spell = Callable[[int], str]  # a token's own text, special tokens too


class Scores(NamedTuple):
    """The scores of a text's tokens. A prompt's first token has none, since nothing precedes it."""

    tokens: Sequence[int]
    scores: Logprobs  # one per token, or per token except the first
    spell: Spell
    rivals: int = 0  # the most rivals per token
    hidden: Collection[int] = ()  # tokens that the text leaves out, such as special ones

    @property
    def texts(self) -> list[str]:
        return [self.spell(token) for token in self.tokens]

    @property
    def widths(self) -> list[int]:
        """Characters of each token in the text. A part of a character counts as one."""
        each = zip(self.tokens, self.texts, strict=True)
        return [0 if token in self.hidden else len(text) for token, text in each]

    @property
    def each(self) -> list[Logprob | None]:
        """One score per token; None for a prompt's first token."""
        return [*[None] * (len(self.tokens) - len(self.scores)), *self.scores]

    def parts(self) -> Iterator["Scores"]:
        """Split into parts small enough to write at once; at least one part, perhaps empty."""
        step, first = max(1, PIECE // (1 + self.rivals)), len(self.tokens) - len(self.scores)
        for begin in range(0, max(1, len(self.tokens)), step):
            end = begin + step
            scores = self.scores[max(0, begin - first) : end - first]
            yield self._replace(tokens=self.tokens[begin:end], scores=scores)


def pieces(chat: bool, scores: Scores) -> Iterator[str]:
    """The JSON of all scores, in pieces. chat: whether in a chat's form or a completion's."""
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
        offset += sum(part.widths)


def chat_logprobs(scores: Scores) -> dict[str, Any]:
    """The scores in a chat's form: each token with its likeliest rivals."""
    return {"content": _content(scores), "refusal": None}


def text_logprobs(scores: Scores, offset: int) -> dict[str, Any]:
    """The scores in a completion's form. A prompt's first token has null, as in OpenAI's API.

    offset: characters of the text before these tokens.
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
            return [*accumulate(scores.widths, initial=offset)][:-1]


def _content(scores: Scores) -> list[dict[str, Any]]:
    content = []
    for text, score in zip(scores.texts, scores.scores, strict=True):
        top = [_entry(scores.spell(id), value) for id, value in score.top]
        content.append({**_entry(text, score.sampled), "top_logprobs": top})
    return content


def _top(text: str, score: Logprob, spell: Spell) -> dict[str, float]:
    """The likeliest rivals by text, the likeliest first; of two with the same text, the likelier.
    The token itself comes last if it is not among them, as in OpenAI's API.
    """
    top = dict[str, float]()
    for id, value in score.top:
        top.setdefault(spell(id), max(value, LEAST))
    top.setdefault(text, max(score.sampled, LEAST))
    return top


def _entry(text: str, value: float) -> dict[str, Any]:
    """One token's entry. It has bytes only if the token is whole characters."""
    known = None if UNFINISHED in text else list(text.encode())
    return {"token": text, "logprob": max(value, LEAST), "bytes": known}
