"""A wish and its prompts' ids, as requests to the engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from headway.answer import Answer
from headway.core.request import Request
from headway.server.choice import Choice
from headway.server.protocol.budget import Terms
from headway.server.protocol.problem import wrong
from headway.server.protocol.wish import Wish
from headway.server.texts import Texts


@dataclass(frozen=True, slots=True)
class Model:
    """What must be known of it to ask it something."""

    texts: Texts
    eos: frozenset[int]
    capacity: int  # tokens that one request may hold


@dataclass(frozen=True, slots=True)
class Place:
    """Where the requests go."""

    id: str  # the call's; its requests' are numbered
    lane: str
    salt: str  # the tenant's
    arrived: int
    terms: Terms


def choices_of(
    wish: Wish, prompts: Sequence[tuple[int, ...]], place: Place, model: Model, seeds: Random
) -> list[Choice]:
    """In the order of prompts and choices. All but a prompt's first wait for it, and share what it
    has computed. Raises Problem and PromptError.
    """
    choices: list[Choice] = []
    for prompt in prompts:
        prompt = prompt[-wish.options.truncate :]
        most = _max_tokens(wish, len(prompt), model.capacity)
        words = model.texts.near
        sampling = wish.options.sampling(seeds.getrandbits(62), model.eos, words)
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
        for choice in range(wish.options.n):
            id = f"{place.id}-{len(choices)}"
            request = first.sibling(id, choice) if leader else first
            answer = Answer(request, wish.options, words)
            choices.append(Choice(wish.chat, answer, model.texts, wish.skip_special, leader))
            leader = leader or choices[-1]
    return choices


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
            "messages" if wish.chat else "prompt",
            "context_length_exceeded",
        )
    return left if most is None else most
