"""Converts headway's Sampling to vLLM's SamplingParams."""

from typing import Any

from headway.core.sampling import Sampling
from headway.executor.torch.sampling.noise import choice_seed


def to_sampling_params(sampling: Sampling, vocab: int) -> Any:
    """A sequence's SamplingParams. vLLM uses stop tokens only to ban them before min_tokens; it is
    headway's scheduler that ends answers.
    """
    from vllm import SamplingParams

    params = SamplingParams(
        temperature=sampling.temperature,
        top_k=min(sampling.top_k, vocab),
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        seed=choice_seed(sampling.seed, sampling.choice) if sampling.temperature else None,
        stop_token_ids=sorted(token for token in sampling.stop_tokens if token < vocab),
        min_tokens=sampling.min_tokens,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias={token: bias for token, bias in sampling.logit_bias if token < vocab} or None,
        logprobs=sampling.logprobs if sampling.logprobs >= 0 else None,
        prompt_logprobs=sampling.prompt_logprobs if sampling.prompt_logprobs >= 0 else None,
        max_tokens=None,
        detokenize=False,
    )
    words = [list(word) for word in sampling.bad_words if word[-1] < vocab]
    params._bad_words_token_ids = words or None  # normally filled in by vLLM's tokenizer
    return params
