"""Log-probabilities in the two forms that OpenAI has for them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headway.core.batch import Logprob

LEAST = -9999.0  # JSON has no infinity; OpenAI's own stand-in for it
UNFINISHED = "\ufffd"  # a token that is not whole characters

Spell = Callable[[int], str]  # a token's own text, special tokens too


def chat_logprobs(tokens: Sequence[int], scores: Sequence[Logprob], spell: Spell) -> dict[str, Any]:
    """Of a message's tokens, each with its likeliest rivals."""
    content = []
    for token, score in zip(tokens, scores, strict=True):
        top = [_entry(spell(id), value) for id, value in score.top]
        content.append({**_entry(spell(token), score.sampled), "top_logprobs": top})
    return {"content": content, "refusal": None}


def text_logprobs(
    tokens: Iterable[int], scores: Iterable[Logprob | None], spell: Spell, offset: int
) -> dict[str, Any]:
    """Of a text's tokens; None for a prompt's first, which nothing came before.

    The likeliest rivals, and last the token itself where it is none of them, as OpenAI has it.
    offset: characters of the text before them. A token that is half a character counts as one.
    """
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    said: dict[str, list[Any]] = {name: [] for name in names}
    for token, score in zip(tokens, scores, strict=True):
        text = spell(token)
        said["tokens"].append(text)
        said["token_logprobs"].append(max(score.sampled, LEAST) if score else None)
        said["top_logprobs"].append(_top(text, score, spell) if score else None)
        said["text_offset"].append(offset)
        offset += len(text)
    return said


def _top(text: str, score: Logprob, spell: Spell) -> dict[str, float]:
    """By spelling, the likeliest first; of two that are spelled alike, the likelier."""
    top = dict[str, float]()
    for id, value in score.top:
        top.setdefault(spell(id), max(value, LEAST))
    top.setdefault(text, max(score.sampled, LEAST))
    return top


def _entry(text: str, value: float) -> dict[str, Any]:
    """Bytes are said where they are known: of whole characters."""
    known = None if UNFINISHED in text else list(text.encode())
    return {"token": text, "logprob": max(value, LEAST), "bytes": known}
