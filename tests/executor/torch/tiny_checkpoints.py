"""Shared by the executor's tests: tiny random checkpoints of every family, and their answers.

A shape is a head layout or a config key that some family needs. Each is built, seeded and saved by
transformers itself, so that the files are like those of a real checkpoint.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB, CONTEXT = 211, 96
BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,  # large, so that greedy answers do not repeat themselves
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 24,
    "beta_fast": 4.0,  # few, so that some pairs are in the middle range
    "beta_slow": 0.5,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0, 1.2, 1.5, 2.0],
    "long_factor": [2.0, 4.0, 6.0, 8.0],
}
WINDOW = {"sliding_window": 11, "use_sliding_window": True}
LOCAL, GLOBAL = "sliding_attention", "full_attention"
EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-mha": ("llama", {"num_key_value_heads": 6}),
    "llama-mqa-tied": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama3-scaled-bias": ("llama", {"rope_parameters": LLAMA3, "attention_bias": True}),
    "llama-wide-heads": ("llama", {"head_dim": 24}),
    "mistral-gqa": ("mistral", {"sliding_window": None, "head_dim": 12}),
    "qwen2-bias-tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3-norms": ("qwen3", {"head_dim": 16}),
    "qwen3-bias-mha": ("qwen3", {"head_dim": 8, "num_key_value_heads": 6, "attention_bias": True}),
    "mistral-window": ("mistral", {"sliding_window": 11}),
    "gemma2": (
        "gemma2",
        {
            "head_dim": 12,
            "tie_word_embeddings": False,  # so small a tied model repeats its prompt
            "query_pre_attn_scalar": 20,
            "sliding_window": 11,
            "attn_logit_softcapping": 3.0,  # low enough to change the scores
            "final_logit_softcapping": 7.0,
        },
    ),
}
# Each differs from a shape above in a choice that batching does not affect, and so runs under fewer
# policies.
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-linear-mlp-bias": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 3.0}, "mlp_bias": True},
    ),
    "llama-dynamic": ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 3.0}}),
    "llama-yarn": ("llama", {"rope_parameters": YARN}),
    "llama-gelu": ("llama", {"hidden_act": "gelu_pytorch_tanh"}),
    "qwen2-window": ("qwen2", WINDOW | {"max_window_layers": 1}),
    # As on Qwen's model card: the length is the one before the stretching.
    "qwen2-yarn": ("qwen2", {"rope_parameters": YARN, "max_position_embeddings": 24}),
    "mistral-yarn-window": (  # longer than the length before the stretching
        "mistral",
        {"rope_parameters": YARN, "max_position_embeddings": 24, "sliding_window": 40},
    ),
    "qwen3-window": ("qwen3", WINDOW | {"layer_types": [LOCAL, GLOBAL], "head_dim": 16}),
    "phi3": ("phi3", {"sliding_window": 11}),
    "phi3-longrope": (
        "phi3",
        {
            "rope_parameters": LONG,
            "max_position_embeddings": 4 * CONTEXT,
            "original_max_position_embeddings": CONTEXT,
        },
    ),
    "phi4-partial": ("phi3", {"rope_parameters": {"partial_rotary_factor": 0.75}}),
    "gemma": ("gemma", {"head_dim": 12}),
    "gemma3": (
        "gemma3_text",
        {
            "head_dim": 12,
            "tie_word_embeddings": False,  # so small a tied model repeats its prompt
            "query_pre_attn_scalar": 20,
            "sliding_window": 11,
            "layer_types": [LOCAL, GLOBAL],
            "rope_parameters": {
                LOCAL: {"rope_type": "default", "rope_theta": 100.0},
                GLOBAL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
            },
        },
    ),
    "olmo2": ("olmo2", {}),
    "olmo3": (
        "olmo3",
        {
            "sliding_window": 11,
            "layer_types": [LOCAL, GLOBAL],
            "rope_parameters": {LOCAL: {"rope_type": "default", "rope_theta": 1e4}, GLOBAL: YARN},
        },
    ),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0]}),
    "smollm3-window": ("smollm3", WINDOW | {"no_rope_layers": [0, 1]}),
    "granite": (
        "granite",
        {
            "embedding_multiplier": 6.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
            "logits_scaling": 4.0,
        },
    ),
    "starcoder2": ("starcoder2", {}),
    "starcoder2-window-no-bias": ("starcoder2", {"sliding_window": 11, "use_bias": False}),
    "mixtral": ("mixtral", EXPERTS),
    "mixtral-window": ("mixtral", EXPERTS | {"sliding_window": 11}),
    "qwen3-moe": (
        "qwen3_moe",
        {"head_dim": 16, "num_experts": 6, "moe_intermediate_size": 40, "num_experts_per_tok": 3},
    ),
    "qwen3-moe-renormed-window": (
        "qwen3_moe",
        WINDOW
        | {"head_dim": 16, "num_experts": 4, "moe_intermediate_size": 40}
        | {"norm_topk_prob": True, "num_experts_per_tok": 2},
    ),
}


SEEDS = {"mixtral": 1}  # by shape, else 0: with these seeds no answer is near a tie


@dataclass(frozen=True)
class Golden:
    """A checkpoint on disk, and the model that transformers makes of it."""

    folder: Path
    model: Any

    def logits(self, tokens: list[int]) -> torch.Tensor:
        """[len(tokens), vocab]"""
        with torch.no_grad():
            return self.model(torch.tensor([tokens])).logits[0].float()

    def generate(self, prompt: tuple[int, ...], count: int) -> list[int]:
        """The greedy answer to this prompt alone; no step may be near a tie."""
        ids = torch.tensor([prompt])
        found = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count
        )[0].tolist()
        top = self.logits(found)[len(prompt) - 1 : -1].topk(2).values
        assert (top[:, 0] - top[:, 1]).min() > 1e-3, "close to a tie: choose another seed"
        return found[len(prompt) :]


def make(folder: Path, shape: str, seed: int = 0, **rest: Any) -> Golden:
    """Save a tiny random checkpoint of this shape."""
    seed = seed or SEEDS.get(shape, 0)
    family, own = (SHAPES | MORE)[shape]
    config = AutoConfig.for_model(family, **(BASE | own | rest))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith(
                "bias"
            ):  # transformers initialises them as ones and zeros
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return Golden(folder, model)
