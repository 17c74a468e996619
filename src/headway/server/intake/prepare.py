"""Tokenize a request's prompts and make its choices, the requests that go to the engine."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from random import Random

from headway.core.request import NEVER, Request
from headway.llm.answer import Answer
from headway.llm.options import Options
from headway.server.answering.choice import Choice
from headway.server.answering.routed import Routed
from headway.server.intake.tokenizing import AsyncTokenizer, characters, check_size
from headway.server.protocol.problem import wrong
from headway.server.protocol.request import ApiRequest, Prompt
from headway.vectors.vectors import without_padding


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What intake needs to know about the model, and the most that one request may ask of it."""

    tokenizer: AsyncTokenizer
    eos: frozenset[int]
    capacity: int  # tokens that one request may hold
    scores: int  # the most log-probabilities of one call
    text_bytes: int  # the most bytes of one text
    adapters: Collection[str] = ()  # the names of its LoRA adapters
    most_tokens: int = NEVER  # the most to generate if the caller gives no max_tokens


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A request's texts as token ids."""

    prompts: tuple[tuple[int, ...], ...]  # truncated
    max_tokens: tuple[int, ...]  # to generate after each prompt
    echoes: tuple[str, ...]  # each prompt's text; empty if it is not echoed
    bad_words: tuple[tuple[int, ...], ...]  # every spelling of them


async def tokenize(request: ApiRequest, model: ServedModel) -> Tokenized:
    """Check and tokenize a request's texts; long texts are tokenized off the event loop. Raises
    Problem and PromptError."""
    tokenizer, options = model.tokenizer, request.options
    _check_ids(options, tokenizer.inner.vocab)
    cuts = [_cut(request, at, model.capacity) for at in range(len(request.prompts))]
    for at, prompt in enumerate(request.prompts):
        field = field_of(request, at)
        if not options.truncate and not cuts[at]:  # else only a part of the prompt is wanted
            _check_length(prompt, model, field)
        check_size(prompt, model.text_bytes, field)
    bad_words = await tokenizer.spellings(options.bad_words)
    encoded = await tokenizer.encode(*request.prompts, most=cuts)
    prompts = [ids[-options.truncate :] for ids in encoded]
    most = tuple([_max_tokens(request, i, len(each), model) for i, each in enumerate(prompts)])
    if options.logprobs >= 0 and not request.hides_scores:
        most = _scored(request, prompts, most, model.scores)
    echoes = [""] * len(prompts)
    if options.echo:
        echoes = await tokenizer.decode(*prompts, skip_special=request.skip_special)
    return Tokenized(tuple(prompts), most, tuple(echoes), bad_words)


def choices_of(
    routed: Routed, tokenized: Tokenized, model: ServedModel, seeds: Random
) -> list[Choice]:
    """The n choices of each prompt, prompt by prompt. The first choice of a prompt computes it;
    its other choices wait for that and share its blocks. Raises PromptError.
    """
    choices: list[Choice] = []
    words, deadlines, options = model.tokenizer.inner, routed.deadlines, routed.request.options
    chat, skip_special = routed.request.chat, routed.request.skip_special
    sampling = options.sampling(seeds.getrandbits(62), model.eos, words, tokenized.bad_words)
    each = zip(tokenized.prompts, tokenized.max_tokens, tokenized.echoes, strict=True)
    form = routed.request.vectors
    for prompt, max_tokens, echo in each:
        if form:
            prompt = without_padding(prompt, form.padding)
        if choices and options.seed is None:
            sampling = replace(sampling, seed=seeds.getrandbits(62))
        first = Request(
            f"{routed.id}-{len(choices)}",
            prompt,
            max_tokens,
            routed.arrival.at,
            routed.lane,
            sampling,
            routed.tenant.salt,
            expected=min(routed.expected, max_tokens),
            start_by=deadlines.start_by,
            end_by=deadlines.end_by,
            due=deadlines.due,
            tenant=routed.tenant.name,
            adapter=routed.model if routed.model in model.adapters else "",
            pooling=form.pooling if form else "",
        )
        leader = None
        for choice in range(options.n):
            id = f"{routed.id}-{len(choices)}"
            request = first.sibling(id, choice) if leader else first
            answer = Answer(request, options, words)
            choices.append(Choice(chat, answer, model.tokenizer, echo, skip_special, leader))
            choices[-1].scores &= not routed.request.hides_scores
            leader = leader or choices[-1]
    return choices


def _check_ids(options: Options, vocab: int) -> None:
    for name, ids in (("logit_bias", options.logit_bias), ("stop_token_ids", options.stop_tokens)):
        if (largest := max(ids, default=0)) >= vocab:
            why = f"'{name}': the model has no token {largest}, only 0 to {vocab - 1}"
            raise wrong(why, name)


def _check_length(prompt: Prompt, model: ServedModel, field: str) -> None:
    """Refuse a prompt that cannot fit however it is tokenized, without tokenizing it."""
    longest = model.tokenizer.inner.longest
    if longest and (long := characters(prompt)) > model.capacity * longest:
        what = f"the model's maximum context length is {model.capacity} tokens"
        message, code = (
            f"{what}: the prompt's {long} characters are more",
            "context_length_exceeded",
        )
        raise wrong(message, field, code)


def _cut(request: ApiRequest, at: int, capacity: int) -> int:
    """The number of tokens that a prompt is cut to; 0: it is not cut."""
    form = request.vectors
    document = form.most if form and form.first and at >= form.queries else 0
    bounds = [capacity if each < 0 else each for each in (request.cut, document) if each]
    return min(*bounds, capacity) if bounds else 0


def field_of(request: ApiRequest, at: int | None = None) -> str:
    """The name of the body's field with the prompts. at: the field of this prompt, with the
    prompt's index if there are several."""
    form, count = request.vectors, len(request.prompts)
    name = form.field if form else "messages" if request.chat else "prompt"
    if at is None:
        return name
    if form and form.first:
        if at < form.queries:
            name, count = form.first, form.queries
        else:
            at, count = at - form.queries, count - form.queries
    return name if count == 1 else f"{name}.{at}"


def _scored(
    request: ApiRequest, prompts: Sequence[Sequence[int]], most: tuple[int, ...], bound: int
) -> tuple[int, ...]:
    """The tokens to generate after each prompt, lowered if the caller gave no max_tokens, so that
    no call holds more log-probabilities than the bound. A stream drops those it has sent. Raises
    Problem if more were asked for."""
    options = request.options
    echoed = sum(map(len, prompts)) if options.echo else 0
    least = sum(most) if options.max_tokens is not None else options.min_tokens * len(prompts)
    kept = 0 if request.stream else least
    each = options.n * (1 + options.logprobs)
    if (count := each * (echoed + kept)) > bound:
        raise wrong(
            f"{count} log-probabilities are asked for, where {bound} are the most of one call: a "
            f"token that is scored has its own and {options.logprobs} rivals'",
            "logprobs",
        )
    if request.stream or options.max_tokens is not None:
        return most
    left = (bound // each - echoed) // len(prompts)
    return tuple([min(each, max(1, left)) for each in most])


def _max_tokens(request: ApiRequest, at: int, prompt: int, model: ServedModel) -> int:
    """The caller's max_tokens, or what the prompt leaves of the context, within the key's cap."""
    capacity = model.capacity
    if not prompt:
        raise wrong("the prompt is empty", field_of(request, at))
    most, least = request.options.max_tokens, request.options.min_tokens
    left, asked = capacity - prompt, least if most is None else most
    if left < (max(1, least) if most is None else most):
        wanted = "" if not asked else f", and {asked} to generate were asked for"
        raise wrong(
            f"the model's maximum context length is {capacity} tokens: the prompt has "
            f"{prompt}{wanted}",
            field_of(request, at),
            "context_length_exceeded",
        )
    return min(left, model.most_tokens) if most is None else most
