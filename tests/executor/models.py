"""What the executor's tests share: tiny random checkpoints of every family, and their answers.

A shape names a head layout or a config key that some family needs; each is built by transformers
itself, seeded, and saved, so that what is read back is what a real checkpoint looks like.
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
    "initializer_range": 0.3,  # large, so that greedy answers do not circle
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
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-mha": ("llama", {"num_key_value_heads": 6}),
    "llama-mqa-tied": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama3-scaled-bias": ("llama", {"rope_parameters": LLAMA3, "attention_bias": True}),
    "llama-wide-heads": ("llama", {"head_dim": 24}),
    "mistral-gqa": ("mistral", {"sliding_window": None, "head_dim": 12}),
    "qwen2-bias-tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3-norms": ("qwen3", {"head_dim": 16}),
    "qwen3-bias-mha": ("qwen3", {"head_dim": 8, "num_key_value_heads": 6, "attention_bias": True}),
}


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
        """Greedy, this prompt alone; no step may be near a tie."""
        ids = torch.tensor([prompt])
        found = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count
        )[0].tolist()
        top = self.logits(found)[len(prompt) - 1 : -1].topk(2).values
        assert (top[:, 0] - top[:, 1]).min() > 1e-3, "a near tie: choose another seed"
        return found[len(prompt) :]


def make(folder: Path, shape: str, seed: int = 0, **rest: Any) -> Golden:
    """Save a tiny random checkpoint of this shape."""
    family, own = SHAPES[shape]
    config = AutoConfig.for_model(family, **(BASE | own | rest))
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):  # made as ones and zeros
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return Golden(folder, model)
