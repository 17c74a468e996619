"""ApiRequest: a chat or completion request, with headway's own options from the body's fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headway.llm.options import Options
from headway.server.protocol.fields import ChatBody, ChatMessage, CompletionBody, GenerationBody
from headway.server.protocol.grammar import field_of, grammar_of
from headway.server.protocol.limits import RequestLimits
from headway.server.protocol.problem import wrong
from headway.text.tokenizer import Message


class Pair(NamedTuple):
    """Two texts that form one prompt."""

    first: str
    second: str
    most: int = 0  # tokens that the second text is cut to; 0: it is not cut


Prompt = str | tuple[int, ...] | tuple[Message, ...] | Pair  # a text, ids, a chat, or a pair
COMPLETION_TOKENS = 16  # /v1/completions' default max_tokens, the same as OpenAI's


@dataclass(frozen=True, slots=True)
class VectorForm:
    """How an answer with vectors instead of text is written."""

    kind: str  # the path's name: embeddings, rerank, score or classify
    pooling: str  # one of core.request.Pooling's
    field: str  # the body's field with the texts
    dimensions: int = 0  # of an embedding; 0: all
    normalized: bool = True  # whether embeddings are normalized
    base64: bool = False
    top: int = 0  # how many documents a ranking returns
    documents: tuple[str, ...] = ()  # their texts, if they are returned as well
    queries: int = 1  # of the texts compared by embeddings: how many come first, as queries
    first: str = ""  # the field of those queries; empty: no texts come before those of `field`
    padding: int = -1  # the token that is dropped from the end of a prompt; -1: none
    most: int = 0  # tokens that each text after the queries is cut to; 0: it is not cut


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """What one call asks for, from any endpoint that runs in a lane."""

    chat: bool  # whether it is a chat, which decides the answer's form
    model: str  # as the client wrote it; empty: the key's first model
    tier: str  # service_tier
    prompts: tuple[Prompt, ...]
    options: Options  # max_tokens None: whatever is left of the context
    stream: bool
    usage: bool  # send the usage in one more chunk at the end
    running_usage: bool  # send the usage so far on every chunk
    skip_special: bool  # leave special tokens out of the text
    shaped: str  # the field that holds the grammar
    cut: int = 0  # keep this many of each prompt's first tokens; 0: all, -1: those that fit
    vectors: VectorForm | None = None  # None: the answer is text
    unsaid: bool = False  # max_tokens is the endpoint's default: the client gave none
    metadata: Mapping[str, str] = field(default_factory=dict)  # for the rules of routes
    # The engine's log-probabilities (Options.logprobs) are only for a route's judge.
    hides_scores: bool = False


def chat_request(body: ChatBody, limits: RequestLimits) -> ApiRequest:
    """The request of a chat's body. Raises Problem."""
    if body.top_logprobs is not None and not body.logprobs:
        raise wrong("'top_logprobs' needs 'logprobs': true", "top_logprobs")
    most = body.max_completion_tokens
    logprobs = (body.top_logprobs or 0) if body.logprobs else -1
    messages = messages_of(body.messages, limits)
    return _api_request(
        body,
        (messages,),
        _options(body, limits, body.max_tokens if most is None else most, logprobs),
    )


def completion_request(body: CompletionBody, limits: RequestLimits) -> ApiRequest:
    """The request of a completion's body. Raises Problem."""
    prompts = prompts_of(body.prompt, "prompt")
    if len(prompts) > limits.prompts:
        raise wrong(
            f"'prompt': {len(prompts)} prompts; one call may have {limits.prompts}", "prompt"
        )
    most = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    logprobs = -1 if body.logprobs is None else body.logprobs
    made = _api_request(body, prompts, _options(body, limits, most, logprobs, bool(body.echo)))
    return replace(made, unsaid=True) if body.max_tokens is None else made


def messages_of(messages: Sequence[ChatMessage], limits: RequestLimits) -> tuple[Message, ...]:
    """The messages as the tokenizer takes them. Raises Problem."""
    if len(messages) > limits.messages:
        why = f"'messages': {len(messages)} messages; one chat has {limits.messages} at most"
        raise wrong(why, "messages")
    return tuple([_message(each) for each in messages])


def _message(message: ChatMessage) -> Message:
    """A message with its content's parts joined. The role developer, a newer name, becomes
    system."""
    content = message.content
    if not isinstance(content, str):
        content = "".join([part.text for part in content])
    return {"role": "system" if message.role == "developer" else message.role, "content": content}


def prompts_of(
    prompt: str | list[str] | list[int] | list[list[int]], field: str
) -> tuple[Prompt, ...]:
    """The prompts of a field with a text, texts, ids or lists of ids. Raises Problem."""
    if isinstance(prompt, str):
        return (prompt,)
    if not prompt:
        raise wrong(f"'{field}' is an empty list", field)
    if isinstance(prompt[0], int):
        return (tuple(prompt),)
    return tuple([each if isinstance(each, str) else tuple(each) for each in prompt])


def _api_request(body: GenerationBody, prompts: tuple[Prompt, ...], options: Options) -> ApiRequest:
    stream_options = body.stream_options
    if stream_options and not body.stream:
        raise wrong("'stream_options' needs 'stream': true", "stream_options")
    return ApiRequest(
        chat=isinstance(body, ChatBody),
        model=body.model or "",
        tier=body.service_tier or "",
        prompts=prompts,
        options=options,
        stream=bool(body.stream),
        usage=bool(stream_options and stream_options.include_usage),
        running_usage=bool(stream_options and stream_options.continuous_usage_stats),
        skip_special=body.skip_special_tokens is not False,
        shaped=field_of(body),
        metadata=body.metadata or {},
    )


def _options(
    body: GenerationBody,
    limits: RequestLimits,
    max_tokens: int | None,
    logprobs: int,
    echo: bool = False,
) -> Options:
    """The body's sampling and limits, with OpenAI's defaults, such as temperature 1. Raises
    Problem."""
    n = body.n or 1
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    for name, count, most in (
        ("n", n, limits.n),
        ("stop", len(stops), limits.stops),
        ("bad_words", len(body.bad_words or ()), limits.stops),
        ("stop_token_ids", len(body.stop_token_ids or ()), limits.stops),
    ):
        if count > most:
            raise wrong(f"'{name}': {count}, where {most} is the most", name)
    for name, words in (("stop", stops), ("bad_words", body.bad_words or ())):
        _check(name, words, limits.stop_chars)
    if max_tokens is not None and (body.min_tokens or 0) > max_tokens:
        raise wrong(f"'min_tokens': {body.min_tokens} are more than may be said", "min_tokens")
    return Options(
        max_tokens=max_tokens,
        min_tokens=body.min_tokens or 0,
        temperature=_or(body.temperature, 1.0),
        top_k=max(0, body.top_k or 0),  # vLLM's -1 is off
        top_p=_or(body.top_p, 1.0),
        min_p=_or(body.min_p, 0.0),
        seed=body.seed,
        stop=stops,
        stop_tokens=frozenset(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        repetition_penalty=_or(body.repetition_penalty, 1.0),
        presence_penalty=_or(body.presence_penalty, 0.0),
        frequency_penalty=_or(body.frequency_penalty, 0.0),
        logit_bias=_bias(body.logit_bias or {}),
        bad_words=tuple(body.bad_words or ()),
        n=n,
        truncate=body.truncate_prompt_tokens or 0,
        echo=echo,
        logprobs=logprobs,
        prompt_logprobs=logprobs if echo else -1,
        grammar=grammar_of(body, limits.schema_bytes),
    )


def _check(name: str, words: Sequence[str], most: int) -> None:
    if not all(words):
        raise wrong(f"'{name}' has an empty string", name)
    if (longest := max(map(len, words), default=0)) > most:
        why = f"'{name}' has a string of {longest} characters, where {most} are the most"
        raise wrong(why, name)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _bias(bias: dict[str, float]) -> dict[int, float]:
    """The bias by token id; in JSON the ids are strings. Raises Problem."""
    for key in bias:
        # Not 05: beside 5 it would be the same token once more, with another bias.
        if not (key.isascii() and key.isdigit() and len(key) < 10 and key == str(int(key))):
            raise wrong(f"'logit_bias': {key!r} is not a token id", "logit_bias")
    return {int(key): value for key, value in bias.items()}
