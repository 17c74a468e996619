"""Rotary frequencies at the sizes of real models. The few pairs of tiny ones would hide errors."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from headway.executor.torch.config.model_config import parse_config
from headway.executor.torch.layers.rope import frequencies, rotary_tables, rotate

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 16,
    "vocab_size": 8,
    "max_position_embeddings": 32768,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 8.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": YARN,
    "yarn-not-rounded": YARN | {"truncate": False},
    "yarn-of-other-turns": YARN | {"beta_fast": 16.0, "beta_slow": 2.0},
    "yarn-weighted": YARN | {"mscale": 1.0, "mscale_all_dim": 0.7},
    "yarn-as-told": YARN | {"attention_factor": 1.3},
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1 + i / 10 for i in range(64)],
        "long_factor": [2.0] * 64,
        "original_max_position_embeddings": 4096,
    },
}


@pytest.mark.parametrize("theta", [10_000.0, 1e6])
@pytest.mark.parametrize("name", SCALINGS)
def test_rotary_frequencies_equal_transformers(name, theta):
    asked = SCALINGS[name] | {"rope_theta": theta}
    rope = parse_config(MODEL | {"rope_parameters": asked}, {}).layer_attention[0].rope
    sizes = {key: value for key, value in MODEL.items() if key != "architectures"}
    reference = LlamaConfig(**sizes, rope_parameters=dict(asked))
    want, scale = ROPE_INIT_FUNCTIONS[asked["rope_type"]](reference, torch.device("cpu"))
    assert torch.allclose(frequencies(rope, 128), want, rtol=1e-6, atol=0)
    assert rope.attention_factor == pytest.approx(scale, rel=1e-12)


def test_partial_rotation_leaves_the_other_dimensions_unchanged():
    own = {"architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": 0.75}
    rope = parse_config(MODEL | own, {}).layer_attention[0].rope
    cos, sin = rotary_tables(rope, 128, 10, torch.float32, torch.device("cpu"))
    assert cos.shape == sin.shape == (10, 1, 48)
    x = torch.randn(10, 3, 128)
    turned = rotate(x, cos, sin)
    assert torch.equal(turned[..., 96:], x[..., 96:]) and torch.equal(turned[0], x[0])
    for i in (0, 47):  # a pair keeps its length
        pair, now = x[..., [i, i + 48]], turned[..., [i, i + 48]]
        assert torch.allclose(pair.norm(dim=-1), now.norm(dim=-1), atol=1e-5)
        assert not torch.allclose(pair[1:], now[1:], atol=1e-3)
