"""How a token is picked: what a caller may ask for, and whether it can be obeyed."""

from dataclasses import dataclass
from math import isfinite

from headway.core.grammar import Grammar

MOST_LOGPROBS = 20  # of the likeliest tokens, beside the sampled one


@dataclass(frozen=True, slots=True)
class Sampling:
    """Greedy where temperature is 0. The random stream is keyed (seed, choice, position), never
    by slot or call.

    Logits pass, in this order: repetition, presence and frequency penalties, logit_bias, bad
    words, the grammar, min_tokens, temperature, top_k, top_p, min_p; each filter sees what the
    one before it has left (the order of transformers and vLLM). So a bias chooses among what the
    grammar allows; where all of it is banned, the request ends with an error.
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
        for name, holds, must in (
            ("temperature", 0 <= self.temperature < float("inf"), "0 or more and finite"),
            ("top_k", self.top_k >= 0, "0 (off) or more"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("min_p", 0 <= self.min_p <= 1, "in [0, 1]"),
            ("seed", 0 <= self.seed < 2**63, "in [0, 2**63)"),
            ("choice", self.choice >= 0, "0 or more"),
            ("min_tokens", self.min_tokens >= 0, "0 or more"),
            ("repetition_penalty", 0 < self.repetition_penalty < float("inf"), "above 0"),
            ("presence_penalty", -2 <= self.presence_penalty <= 2, "in [-2, 2]"),
            ("frequency_penalty", -2 <= self.frequency_penalty <= 2, "in [-2, 2]"),
            ("logprobs", -1 <= self.logprobs <= MOST_LOGPROBS, "from 0 to 20, or -1 for none"),
            (
                "prompt_logprobs",
                -1 <= self.prompt_logprobs <= MOST_LOGPROBS,
                "from 0 to 20, or -1 for none",
            ),
        ):
            if not holds:
                return f"{name} must be {must}, not {getattr(self, name)}"
        for token, bias in self.logit_bias:
            if token < 0 or not isfinite(bias):
                return f"logit_bias must be of tokens and finite, not {token}: {bias}"
        if not all(self.bad_words):
            return "a bad word is empty"
        if self.grammar and not self.stop_tokens:
            return "an answer with a grammar ends with a stop token, and there is none"
        return self.grammar.problem()
