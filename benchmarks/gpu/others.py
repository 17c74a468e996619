"""transformers' continuous batching on the same weights' shape, device and requests."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch

from benchmarks.gpu.bound import wait
from benchmarks.gpu.shape import Size

LONGEST = 120.0  # seconds between two answers


def answer_seconds(
    size: Size, prompts: Sequence[tuple[int, ...]], answer: int, device: torch.device
) -> float:
    """Seconds to answer all prompts with `answer` tokens each. Raises ImportError, or whatever
    transformers raises: its interface for this changes from version to version."""
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    kind = {key: value for key, value in size.raw.items() if key != "architectures"}
    config = AutoConfig.for_model(kind.pop("model_type"), **kind)
    dtype = getattr(torch, size.raw["torch_dtype"])
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = model.eval().requires_grad_(False)
    asked = GenerationConfig(
        max_new_tokens=answer, do_sample=False, eos_token_id=-1, pad_token_id=0, use_cache=True
    )
    inputs = [list(each) for each in prompts]
    with model.continuous_batching_context_manager(generation_config=asked) as manager:
        _answered(manager, inputs[:4])  # its memory is planned, and its kernels are compiled
        wait(device)
        began = perf_counter()
        made = _answered(manager, inputs)
        wait(device)
        spent = perf_counter() - began
    if made != answer * len(prompts):
        raise RuntimeError(f"{made} tokens came, not {answer * len(prompts)}")
    return spent


def _answered(manager: Any, inputs: list[list[int]]) -> int:
    """Tokens of the answers to all of them."""
    manager.add_requests(inputs)
    made, done = 0, 0
    while done < len(inputs):
        result = manager.get_result(timeout=LONGEST)
        if result is None or result.error is not None:
            raise RuntimeError(f"no answer came: {result and result.error}")
        if result.is_finished():
            made, done = made + len(result.generated_tokens), done + 1
    return made
