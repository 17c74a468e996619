"""An answer that does not stream: one JSON object."""

from collections.abc import Sequence
from typing import Any


def choice(
    chat: bool, index: int, text: str, finish: str, logprobs: dict[str, Any] | None
) -> dict[str, Any]:
    """One of an answer's choices."""
    said: dict[str, Any] = {"index": index, "finish_reason": finish, "logprobs": logprobs}
    if chat:
        return said | {"message": {"role": "assistant", "content": text, "refusal": None}}
    return said | {"text": text}


def whole(
    chat: bool,
    about: tuple[str, int, str],
    choices: Sequence[dict[str, Any]],
    usage: dict[str, Any],
    metrics: dict[str, Any],
) -> dict[str, Any]:
    """about: id, time of creation in Unix seconds, model."""
    id, created, model = about
    return {
        "id": id,
        "object": "chat.completion" if chat else "text_completion",
        "created": created,
        "model": model,
        "choices": choices,
        "usage": usage,
        "metrics": metrics,
    }
