"""What is measured: the shape of Llama-3.1-8B with random weights; or a tiny one, for trying."""

from dataclasses import dataclass
from typing import Any

from headway.executor.torch.config.model_config import parse_config
from headway.executor.torch.load import LoadedModel, load_random
from headway.executor.torch.memory.memory_plan import Limits

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
}
TINY: dict[str, Any] = LLAMA_8B | {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "torch_dtype": "float32",
}


@dataclass(frozen=True, slots=True)
class Size:
    """How large everything is."""

    name: str
    raw: dict[str, Any]  # as in config.json
    rows: tuple[int, int]  # of decode steps
    held: int  # tokens of context of each
    prompt: int  # tokens of the prefill
    steps: int  # decode steps that are timed
    slots: int  # of the strategies
    requests: int
    most_prompt: int  # tokens of a request's prompt
    most_answer: int
    seconds: float  # of calibrating
    aims: bool  # whether figures are held against them


EIGHT_B = Size(
    "random weights in the shape of Llama-3.1-8B",
    LLAMA_8B,
    rows=(64, 256),
    held=1_024,
    prompt=2_048,
    steps=50,
    slots=64,
    requests=512,  # so that a 99th percentile has five beyond it
    most_prompt=1_024,
    most_answer=256,
    seconds=60,
    aims=True,
)
SMALLEST = Size(
    "a tiny shape: NO EVIDENCE of anything but that the benchmark runs",
    TINY,
    rows=(4, 8),
    held=64,
    prompt=128,
    steps=5,
    slots=4,
    requests=16,
    most_prompt=48,
    most_answer=12,
    seconds=2,
    aims=False,
)


def load(size: Size, device: str) -> LoadedModel:
    """The model, its weights drawn on the device, with KV memory for the most rows."""
    context = 2 * max(size.prompt, size.held)
    limits = Limits(max(size.rows), 2 * context, context)
    loaded = load_random(parse_config(size.raw, {}), limits, device=device)
    loaded.executor.prepare(size.slots, size.slots, seconds=1)  # on a GPU: compiles the kernels
    return loaded
