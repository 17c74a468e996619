"""The chunks of a stream. They are formatted by hand, because one is made per token.

data: {"id":..,"object":..,"created":..,"model":..,"choices":[..]}
|<---------------- head -------------------------------->|
"""

import json
from json.encoder import encode_basestring_ascii
from typing import Any

from headway.server.protocol.problem import Problem

DONE = b"data: [DONE]\n\n"
WAITING = b": waiting\n\n"  # a comment: clients skip it, and proxies keep the connection open


class Chunks:
    """Makes the chunks of one call. chat: whether they have a chat's form or a completion's."""

    def __init__(self, chat: bool, id: str, created: int, model: str, usage: bool) -> None:
        object = "chat.completion.chunk" if chat else "text_completion"
        head = {"id": id, "object": object, "created": created, "model": model}
        self.chat = chat
        self._head = f'data: {compact(head)[:-1]},"choices":['
        self._tail = '],"usage":null}\n\n' if usage else "]}\n\n"
        self._text_head = '"delta":{"content":' if chat else '"text":'
        self._text_tail = (
            f'{"}" if chat else ""},"logprobs":null,"finish_reason":null}}{self._tail}'
        )

    def role(self, choice: int, usage: dict[str, Any] | None = None) -> bytes:
        """The first chunk of a choice in a chat. usage: so far, if it is included."""
        fields = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
        return f'{self._head}{{"index":{choice},{fields}}}{self._ended(usage)}'.encode()

    def text(
        self,
        choice: int,
        text: str,
        finish: str = "",
        logprobs: dict[str, Any] | None = None,
        usage: dict[str, Any] | None = None,
    ) -> bytes:
        """A chunk with new text, the finish reason, or both. usage: so far, if it is included."""
        spelled = encode_basestring_ascii(text)  # what json.dumps calls in the end
        if not (finish or logprobs or usage):
            head = f'{self._head}{{"index":{choice},{self._text_head}'
            return f"{head}{spelled}{self._text_tail}".encode()
        if not self.chat:
            content = f'"text":{spelled}'
        elif finish and not text:
            content = '"delta":{}'
        else:
            content = f'"delta":{{"content":{spelled}}}'
        scores = compact(logprobs) if logprobs else "null"
        ended = f'"{finish}"' if finish else "null"
        return (
            f'{self._head}{{"index":{choice},{content},"logprobs":{scores},"finish_reason":{ended}}}'
            f"{self._ended(usage)}"
        ).encode()

    def _ended(self, usage: dict[str, Any] | None) -> str:
        """The end of a chunk, with this usage."""
        return f'],"usage":{compact(usage)}}}\n\n' if usage else self._tail

    def usage(self, usage: dict[str, Any], metrics: dict[str, Any]) -> bytes:
        """The last chunk, which has no choices."""
        return (
            f'{self._head}],"usage":{compact(usage)},"metrics":{compact(metrics)}}}\n\n'
        ).encode()


def failed(problem: Problem) -> bytes:
    """The chunk for an error in a stream that has begun with status 200."""
    return f"data: {compact(problem.body)}\n\n".encode()


_compact = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes an encoder per call


def compact(value: Any) -> str:
    """JSON without spaces."""
    return _compact(value)
