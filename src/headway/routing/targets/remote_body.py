"""Requests as JSON of OpenAI's API, and answers from it. Pure functions."""

import json
from collections.abc import Mapping
from math import nan
from typing import Any

from headway.core.request import Finish
from headway.errors import EngineError, PromptError, SettingError, first_line
from headway.llm.answer import Delta
from headway.llm.options import Options
from headway.routing.request import RouteAnswer, RouteRequest
from headway.routing.targets.remote_reading import message_of

SAME = "max_tokens", "top_p", "seed", "presence_penalty", "frequency_penalty"
# Not in OpenAI's API, but headway and vLLM take them. Sent only where not the default.
EXTENSIONS = "top_k", "min_p", "min_tokens", "repetition_penalty", "ignore_eos"
MOST_TOKENS = 10**9  # no answer has more: a count of more is no count
UNSENT = "n", "echo", "truncate", "prompt_logprobs", "grammar", "adapter"
DEFAULT = Options()


def is_chat(request: RouteRequest) -> bool:
    """Whether the input is a chat's messages."""
    given = request.input
    return isinstance(given, list | tuple) and bool(given) and isinstance(given[0], dict)


def body_of(request: RouteRequest, model: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of a request. fields: added last. Raises SettingError for unsendable options."""
    options = request.options
    for name in UNSENT:
        if getattr(options, name) != getattr(DEFAULT, name):
            raise SettingError(f"a remote target cannot be told `{name}`")
    body: dict[str, Any] = {"model": model, "temperature": options.temperature}
    body["messages" if is_chat(request) else "prompt"] = request.input
    for name in SAME + EXTENSIONS:
        if (value := getattr(options, name)) != getattr(DEFAULT, name):
            body[name] = value
    if options.stop:
        body["stop"] = list(options.stop)
    if options.stop_tokens:
        body["stop_token_ids"] = sorted(options.stop_tokens)
    if options.bad_words:
        body["bad_words"] = list(options.bad_words)
    if options.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in options.logit_bias.items()}
    if options.logprobs >= 0:
        body["logprobs"] = True if is_chat(request) else options.logprobs
        if is_chat(request):
            body["top_logprobs"] = options.logprobs
    return body | dict(fields)


def encoded(body: Mapping[str, Any]) -> bytes:
    """A request's JSON as it is sent. Raises PromptError for a lone surrogate, and SettingError for
    what JSON cannot hold."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise PromptError(f"a text cannot be sent: {first_line(error)}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingError(f"a remote target cannot be told this: {first_line(error)}") from error


def answer_of(found: Any, chat: bool) -> RouteAnswer:
    """The answer in a response's JSON. Raises EngineError if the JSON is not in OpenAI's form."""
    try:
        choice = found["choices"][0]
        text = (choice["message"]["content"] if chat else choice["text"]) or ""
        scores = _logprobs(choice.get("logprobs") or {}, chat)
        tokens = count_of(found.get("usage"), "completion_tokens") or len(scores)
        mean = sum(scores) / len(scores) if scores else nan
        return RouteAnswer(found, str(text), mean, tokens)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise EngineError("the server's answer is not of OpenAI's form") from error


def _logprobs(found: Mapping[str, Any], chat: bool) -> list[float]:
    if chat:
        return [float(each["logprob"]) for each in found.get("content") or []]
    return [float(each) for each in found.get("token_logprobs") or [] if each is not None]


def count_of(usage: Any, name: str) -> int:
    """A token count from the server's usage; 0: it is absent, or no possible number."""
    try:
        return count if 0 <= (count := int(usage[name])) <= MOST_TOKENS else 0
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0


def piece_of(found: Any, chat: bool) -> Delta:
    """The text and finish in a chunk. A chunk without a choice is empty. Raises EngineError."""
    try:
        if found.get("error"):
            raise EngineError(f"the server ended the stream: {message_of(found['error'])}")
        if not found["choices"]:
            return Delta("", ())
        choice = found["choices"][0]
        text = choice["delta"].get("content") if chat else choice["text"]
        reason = choice.get("finish_reason")
        finish = Finish.LENGTH if reason == "length" else Finish.STOP if reason else Finish.NOT_YET
        return Delta(str(text or ""), (), finish)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineError("the server's stream is not of OpenAI's form") from error
