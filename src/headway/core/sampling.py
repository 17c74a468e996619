"""How a token is picked: what a caller may ask for, and whether it can be obeyed."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ulp
from typing import Any

from headway.core.grammar import Grammar

MOST_LOGPROBS = 20  # of the likeliest tokens, beside the sampled one
TOKENS = 2**32  # a token's id is below it, as in the prefix cache's names and in journals
COUNT = 2**63 - 1  # the executor's tables hold no larger one
SIZE = 1e30  # and no larger number: float32 must have room for what is computed with it
LOGPROBS = f"from 0 to {MOST_LOGPROBS}, or -1 for none"
# By field: of which type, the least and the largest, and that in words. The numbers reach tables
# of fixed width in a step that others share, so what they cannot hold is refused before.
BOUNDS: tuple[tuple[str, Any, float, float, str], ...] = (
    ("temperature", (int, float), 0, SIZE, f"0 or more and finite, {SIZE:g} at most"),
    ("top_k", int, 0, COUNT, "0 (off) or more, below 2**63"),
    ("top_p", (int, float), ulp(0.0), 1, "in (0, 1]"),
    ("min_p", (int, float), 0, 1, "in [0, 1]"),
    ("seed", int, 0, COUNT, "in [0, 2**63)"),
    ("choice", int, 0, COUNT, "0 or more, below 2**63"),
    ("min_tokens", int, 0, COUNT, "0 or more, below 2**63"),
    ("repetition_penalty", (int, float), 1 / SIZE, SIZE, f"above 0, from {1 / SIZE:g} to {SIZE:g}"),
    ("presence_penalty", (int, float), -2, 2, "in [-2, 2]"),
    ("frequency_penalty", (int, float), -2, 2, "in [-2, 2]"),
    ("logprobs", int, -1, MOST_LOGPROBS, LOGPROBS),
    ("prompt_logprobs", int, -1, MOST_LOGPROBS, LOGPROBS),
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Greedy where temperature is 0. The random stream is keyed (seed, choice, position), never
    by slot or call.

    Logits pass, in this order: repetition, presence and frequency penalties, logit_bias, bad
    words, the grammar, min_tokens, temperature, top_k, top_p, min_p; each filter sees what the
    one before it has left. So a bias chooses among what the grammar allows; where all of it is
    banned, the request ends with an error.

    transformers (5.23) and vLLM (0.20) add the bias before the penalties, so that a repetition
    penalty scales it too. The rest is the order of transformers. vLLM has min_p before top_k and
    top_p: where both min_p and top_p are set, top_p sees fewer tokens there.
    """

    temperature: float = 0.0
    top_k: int = 0  # keep the k most likely; 0: all
    top_p: float = 1.0  # keep the fewest whose probabilities reach this; 1: all
    min_p: float = 0.0  # keep those at least this share of the most likely one; 0: all
    seed: int = 0
    choice: int = 0  # of several answers to one prompt: each has a stream of its own
    stop_tokens: frozenset[int] = frozenset()  # each ends the answer, and is its last token
    min_tokens: int = 0  # until so many are generated, no stop token can be sampled
    repetition_penalty: float = 1.0  # of tokens in prompt or answer: logit / it, or x it below 0
    presence_penalty: float = 0.0  # taken once from each token that the answer has
    frequency_penalty: float = 0.0  # taken for each time the answer has it
    logit_bias: tuple[tuple[int, float], ...] = ()  # added: token, bias
    bad_words: tuple[tuple[int, ...], ...] = ()  # sequences whose last token is never sampled
    logprobs: int = -1  # -1: none; n: of the sampled token and of the n most likely
    prompt_logprobs: int = (
        -1
    )  # -1: none; n: of each prompt token but the first, and the n likeliest
    grammar: Grammar = Grammar()  # a stop token is allowed where the answer may end, and last

    @property
    def weighs_tokens(self) -> bool:
        """Whether prompt and answer, token by token, change or score the logits."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return penalties != (1.0, 0.0, 0.0) or bool(self.bad_words) or self.prompt_logprobs >= 0

    @property
    def reads_tokens(self) -> bool:
        """Whether the executor must be told what is known already."""
        return self.weighs_tokens or bool(self.grammar)

    def problem(self) -> str:
        """What is wrong with it, in words for the caller; empty if nothing is."""
        for name, kind, least, most, must in BOUNDS:
            value = getattr(self, name)
            if not isinstance(value, kind) or not least <= value <= most:
                return f"{name} must be {must}, not {shown(value)}"
        for token, bias in self.logit_bias:
            if not _is_token(token) or not isinstance(bias, int | float) or not abs(bias) <= SIZE:
                said = f"{shown(token)}: {shown(bias)}"
                return f"logit_bias must be of tokens and from -{SIZE:g} to {SIZE:g}, not {said}"
        if not all(self.bad_words):
            return "a bad word is empty"
        for name, tokens in (
            ("stop_tokens", self.stop_tokens),
            ("bad_words", (token for word in self.bad_words for token in word)),
        ):
            if (wrong := _no_token(tokens)) is not None:
                return f"{name} must be of tokens, from 0 to {TOKENS - 1}, not {shown(wrong)}"
        if self.grammar and not self.stop_tokens:
            return "an answer with a grammar ends with a stop token, and there is none"
        return self.grammar.problem()


def shown(value: Any) -> str:
    """In a message; an integer may have more digits than Python puts into one."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    return repr(value)


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < TOKENS


def _no_token(values: Iterable[Any]) -> Any:
    """The first that is none; None: all are."""
    return next((value for value in values if not _is_token(value)), None)
