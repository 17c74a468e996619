"""A wish and its prompts' ids, as requests to the engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from headway.answer import Answer
from headway.core.request import Request
from headway.options import Options
from headway.server.answering.choice import Choice
from headway.server.intake.tokenizing import Texts, characters, check_size
from headway.server.protocol.deadlines import Terms
from headway.server.protocol.problem import wrong
from headway.server.protocol.request import Prompt, Wish


@dataclass(frozen=True, slots=True)
class Model:
    """What must be known of it to ask it something."""

    texts: Texts
    eos: frozenset[int]
    capacity: int  # tokens that one request may hold
    scores: int  # log-probabilities that one call may have
    text_bytes: int  # that one text may have


@dataclass(frozen=True, slots=True)
class Spelled:
    """A wish's texts, as the model has them."""

    prompts: tuple[tuple[int, ...], ...]  # truncated
    most: tuple[int, ...]  # tokens to generate after each
    echoes: tuple[str, ...]  # what each says; empty texts where that is not to be said
    bad_words: tuple[tuple[int, ...], ...]  # their spellings


@dataclass(frozen=True, slots=True)
class Place:
    """Where the requests go."""

    id: str  # the call's; its requests' are numbered
    lane: str
    salt: str  # the tenant's
    arrived: int
    terms: Terms


async def spelled(wish: Wish, model: Model) -> Spelled:
    """What is long is waited for, beside the event loop. Raises Problem and PromptError."""
    texts, options = model.texts, wish.options
    _check_ids(options, texts.words.vocab)
    if not options.truncate:  # else its end is what is wanted
        for prompt in wish.prompts:
            _check_length(prompt, model, wish.chat)
    for prompt in wish.prompts:
        check_size(prompt, model.text_bytes, _field(wish.chat))
    bad_words = await texts.spellings(options.bad_words)
    prompts = [ids[-options.truncate :] for ids in await texts.encode(*wish.prompts)]
    most = tuple([_max_tokens(wish, len(prompt), model.capacity) for prompt in prompts])
    if options.logprobs >= 0:
        most = _scored(wish, prompts, most, model.scores)
    echoes = [""] * len(prompts)
    if options.echo:
        echoes = await texts.decode(*prompts, skip_special=wish.skip_special)
    return Spelled(tuple(prompts), most, tuple(echoes), bad_words)


def choices_of(
    wish: Wish, said: Spelled, place: Place, model: Model, seeds: Random
) -> list[Choice]:
    """In the order of prompts and choices. All but a prompt's first wait for it, and share what it
    has computed. Raises PromptError.
    """
    choices: list[Choice] = []
    words, options = model.texts.words, wish.options
    sampling = options.sampling(seeds.getrandbits(62), model.eos, words, said.bad_words)
    for prompt, most, echo in zip(said.prompts, said.most, said.echoes, strict=True):
        if choices and options.seed is None:
            sampling = replace(sampling, seed=seeds.getrandbits(62))
        first = Request(
            f"{place.id}-{len(choices)}",
            prompt,
            most,
            place.arrived,
            place.lane,
            sampling,
            place.salt,
            start_by=place.terms.start_by,
            end_by=place.terms.end_by,
        )
        leader = None
        for choice in range(options.n):
            id = f"{place.id}-{len(choices)}"
            request = first.sibling(id, choice) if leader else first
            answer = Answer(request, options, words)
            made = Choice(wish.chat, answer, model.texts, echo, wish.skip_special, leader)
            choices.append(made)
            leader = leader or choices[-1]
    return choices


def _check_ids(options: Options, vocab: int) -> None:
    for name, ids in (("logit_bias", options.logit_bias), ("stop_token_ids", options.stop_tokens)):
        if (largest := max(ids, default=0)) >= vocab:
            why = f"'{name}': token {largest} is none of the model's 0 to {vocab - 1}"
            raise wrong(why, name)


def _check_length(prompt: Prompt, model: Model, chat: bool) -> None:
    """What cannot fit, however it is tokenized, holds up nobody while it is."""
    if (long := characters(prompt)) > model.capacity * model.texts.words.longest:
        what = f"the model's maximum context length is {model.capacity} tokens"
        said, code = f"{what}: the prompt's {long} characters are more", "context_length_exceeded"
        raise wrong(said, _field(chat), code)


def _field(chat: bool) -> str:
    return "messages" if chat else "prompt"


def _scored(
    wish: Wish, prompts: Sequence[Sequence[int]], most: tuple[int, ...], bound: int
) -> tuple[int, ...]:
    """As many tokens after each prompt, or fewer where the caller did not say how many: no call has
    more log-probabilities than the bound. A stream gives up what it has sent."""
    options = wish.options
    echoed = sum(map(len, prompts)) if options.echo else 0
    kept = 0 if wish.stream or options.max_tokens is None else sum(most)
    each = options.n * (1 + options.logprobs)
    if (count := each * (echoed + kept)) > bound:
        raise wrong(
            f"{count} log-probabilities are asked for, where {bound} are the most of one call: a "
            f"token that is scored has its own and {options.logprobs} rivals'",
            "logprobs",
        )
    if wish.stream or options.max_tokens is not None:
        return most
    left = (bound // each - echoed) // len(prompts)
    return tuple([min(each, max(1, left)) for each in most])


def _max_tokens(wish: Wish, prompt: int, capacity: int) -> int:
    """What is left of the context, where the caller did not say."""
    if not prompt:
        raise wrong("the prompt is empty", "prompt")
    most = wish.options.max_tokens
    left = capacity - prompt
    if left < (1 if most is None else most):
        asked = "" if most is None else f", and {most} to generate were asked for"
        raise wrong(
            f"the model's maximum context length is {capacity} tokens: the prompt has "
            f"{prompt}{asked}",
            _field(wish.chat),
            "context_length_exceeded",
        )
    return left if most is None else most
