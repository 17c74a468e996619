"""How tokens are sampled (Sampling), and whether what a caller asks for can be obeyed."""

from dataclasses import dataclass
from itertools import chain
from math import ulp
from typing import Any

from headway.core.grammar import Grammar

MOST_LOGPROBS = 20  # likeliest tokens, beside the sampled one
TOKENS = 2**32  # token ids are below this, in block hashes and in journals too
COUNT = 2**63 - 1  # the largest integer that the executor's tables hold
SIZE = 1e30  # the largest float: float32 must hold what is computed with it
LOGPROBS = f"from 0 to {MOST_LOGPROBS}, or -1 for none"
# By field: its type, the least and the largest value, and both in words. The values reach tables of
# fixed width in steps that requests share, so values that do not fit are refused at admission.
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
    """How a request's tokens are sampled; greedy if temperature is 0. The random stream is keyed
    by (seed, choice, position), never by slot or call.

    Logits pass these in order: repetition, presence and frequency penalties, logit_bias, bad
    words, the grammar, min_tokens, temperature, top_k, top_p, min_p. Each filter sees what the one
    before it has left, so a bias chooses among what the grammar allows. If nothing that the
    grammar allows is left, the request ends with an error.

    transformers (5.23) and vLLM (0.20) add the bias before the penalties, so that a repetition
    penalty scales it too. The rest is the order of transformers. vLLM has min_p before top_k and
    top_p: where both min_p and top_p are set, top_p sees fewer tokens there.
    """

    temperature: float = 0.0
    top_k: int = 0  # keep the k most likely; 0: all
    top_p: float = 1.0  # keep the fewest whose probabilities reach this; 1: all
    min_p: float = 0.0  # keep those at least this share as probable as the likeliest; 0: all
    seed: int = 0
    choice: int = 0  # number of this answer, of several to one prompt: each has its own stream
    stop_tokens: frozenset[int] = frozenset()  # each ends the answer, and is its last token
    min_tokens: int = 0  # no stop token is sampled before this many tokens
    repetition_penalty: float = 1.0  # divides positive logits of tokens seen, multiplies others
    presence_penalty: float = 0.0  # subtracted once for each token that the answer has
    frequency_penalty: float = 0.0  # subtracted for each time the answer has the token
    logit_bias: tuple[tuple[int, float], ...] = ()  # token, what is added to its logit
    bad_words: tuple[tuple[int, ...], ...] = ()  # sequences whose last token is never sampled
    logprobs: int = -1  # -1: none; n: of the sampled token and of the n most likely
    prompt_logprobs: int = -1  # the same, of each prompt token but the first
    grammar: Grammar = Grammar()  # a stop token is allowed where the answer may end

    @property
    def weighs_tokens(self) -> bool:
        """Whether the logits depend on, or score, the tokens of prompt and answer."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return penalties != (1.0, 0.0, 0.0) or bool(self.bad_words) or self.prompt_logprobs >= 0

    @property
    def reads_tokens(self) -> bool:
        """Whether the executor must be told the tokens that are known already."""
        return self.weighs_tokens or bool(self.grammar)

    def problem(self) -> str:
        """Describe what is wrong with these settings, for the caller; empty: nothing."""
        for name, kind, least, most, must in BOUNDS:
            value = getattr(self, name)
            if not isinstance(value, kind) or not least <= value <= most:
                return f"{name} must be {must}, not {shown(value)}"
        for token, bias in self.logit_bias:
            if not _is_token(token) or not isinstance(bias, int | float) or not abs(bias) <= SIZE:
                entry = f"{shown(token)}: {shown(bias)}"
                return f"logit_bias must be of tokens and from -{SIZE:g} to {SIZE:g}, not {entry}"
        if not all(self.bad_words):
            return "a bad word is empty"
        for name, tokens in (
            ("stop_tokens", self.stop_tokens),
            ("bad_words", chain(*self.bad_words)),
        ):
            for token in tokens:
                if not _is_token(token):
                    return f"{name} must be of tokens, from 0 to {TOKENS - 1}, not {shown(token)}"
        if self.grammar and not self.stop_tokens:
            return "an answer with a grammar ends with a stop token, and there is none"
        return self.grammar.problem()


UNASKED = Sampling()  # of a request that sets nothing, as a function's item: it is always valid


def shown(value: Any) -> str:
    """The value as a message shows it: Python refuses to print very long integers."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    return repr(value)


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < TOKENS
