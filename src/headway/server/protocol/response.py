"""response_json: an unstreamed answer's JSON, in pieces because log-probabilities are long."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from headway.server.protocol.chunks import compact
from headway.server.protocol.logprobs import Scores, pieces


class FinishedChoice(NamedTuple):
    """One choice of an answer."""

    text: str
    finish: str  # OpenAI's finish reason
    scores: Scores | None


def response_json(
    chat: bool,
    about: tuple[str, int, str],
    choices: Iterable[FinishedChoice],
    usage: dict[str, Any],
    metrics: dict[str, Any],
) -> Iterator[str]:
    """The answer's JSON, in pieces. about: id, time of creation in Unix seconds, model."""
    id, created, model = about
    kind = "chat.completion" if chat else "text_completion"
    head = compact({"id": id, "object": kind, "created": created, "model": model})
    yield f'{head[:-1]},"choices":['
    for index, choice in enumerate(choices):
        opening = compact({"index": index, "finish_reason": choice.finish})
        yield f'{"," if index else ""}{opening[:-1]},"logprobs":'
        yield from pieces(chat, choice.scores) if choice.scores else ["null"]
        message = {"role": "assistant", "content": choice.text, "refusal": None}
        yield f",{compact({'message': message} if chat else {'text': choice.text})[1:]}"
    yield f'],"usage":{compact(usage)},"metrics":{compact(metrics)}}}'
