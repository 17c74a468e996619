"""The decoder families: what each one fixes in its code instead of in config.json.

There is one decoder. A family is a set of choices for it: where the norms are and how they scale,
the kind of MLP, how far each layer looks back. A new family that needs no new kind of choice takes
one row here and a shape in the golden tests.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

GEMMA_CAPS = frozenset({"final_logit_softcapping", "attn_logit_softcapping"})
GRANITE_SCALES = frozenset(
    {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}
)


@dataclass(frozen=True, slots=True)
class Family:
    """One model_type. The second half are defaults for keys that config.json may lack."""

    model_type: str
    supports: frozenset[str] = frozenset()  # the OPTIONAL_KEYS that it supports
    # pre: before each half of a layer; post: after it, inside the residual (OLMo-2); both
    norms: Literal["pre", "post", "both"] = "pre"
    # rms: rounded to the dtype, then weighted; wide: weighted in float32, then rounded (OLMo-2);
    # offset: as wide, with the weight stored minus 1 (Gemma); layer: LayerNorm with bias
    norm: Literal["rms", "wide", "offset", "layer"] = "rms"
    qk_norm: Literal["", "head", "whole"] = ""  # before rope: each head, or all heads as one
    qkv_bias: bool = False  # there is always a bias, whatever `attention_bias` says
    bias_key: str = "attention_bias"  # the key of config.json that asks for a bias
    gated: bool = True  # the MLP: down(act(gate(x)) * up(x)), else down(act(up(x)))
    fused: bool = False  # the checkpoint has one matrix for qkv, and one for gate and up
    scaled_embedding: bool = False  # embeddings are scaled by the root of their width (Gemma)
    # layers with the sliding window: none, all, or as layer_types or the family's pattern says
    windows: Literal["none", "all", "some"] = "none"
    window_is_opt_in: bool = False  # the window is off unless use_sliding_window says otherwise
    eps_key: str = "rms_norm_eps"  # the key of eps in config.json
    activation_key: str = "hidden_act"  # the key of the activation in config.json

    eps: float = 1e-6
    theta: float = 10_000.0
    local_theta: float = 0.0  # of layers with a window, if not theta
    head_dim: int = 0  # 0: hidden / heads
    kv_heads: int = 0  # 0: as many as heads
    tied: bool = False
    window: int = 0  # 0: none
    global_every: int = 0  # every n-th layer attends to everything; all others have the window
    activation: str = "silu"
    query_scalar: int = 0  # attention scores are divided by its root; 0: by head_dim's root
    soft_caps: tuple[float, float] = (0.0, 0.0)  # of attention scores, of logits; 0: none
    chosen_experts: int = 2  # per token
    original_context: int = 0  # context before rope is stretched; 0: as rope's settings say


GEMMA = Family(
    "gemma",
    norm="offset",
    scaled_embedding=True,
    head_dim=256,
    kv_heads=16,
    tied=True,
    activation="gelu_pytorch_tanh",
)
GEMMA_2 = replace(
    GEMMA,
    model_type="gemma2",
    supports=GEMMA_CAPS,
    norms="both",
    windows="some",
    activation_key="hidden_activation",
    kv_heads=4,
    window=4096,
    global_every=2,
    query_scalar=256,
    soft_caps=(50.0, 30.0),
)
OLMO_2 = Family("olmo2", norms="post", norm="wide", qk_norm="whole", eps=1e-5)

# Keyed by the name in config.json's `architectures`.
FAMILIES = {
    "LlamaForCausalLM": Family("llama", frozenset({"mlp_bias"})),
    "MistralForCausalLM": Family("mistral", windows="all", kv_heads=8, window=4096),
    "MixtralForCausalLM": Family(
        "mixtral", frozenset({"num_local_experts"}), windows="all", eps=1e-5, theta=1e6, kv_heads=8
    ),
    "Qwen2ForCausalLM": Family(
        "qwen2", qkv_bias=True, windows="some", window_is_opt_in=True, kv_heads=32, window=4096
    ),
    "Qwen3ForCausalLM": Family(
        "qwen3",
        qk_norm="head",
        windows="some",
        window_is_opt_in=True,
        head_dim=128,
        kv_heads=32,
        window=4096,
    ),
    "Qwen3MoeForCausalLM": Family(
        "qwen3_moe",
        frozenset({"num_experts", "num_local_experts"}),
        qk_norm="head",
        windows="all",
        window_is_opt_in=True,
        kv_heads=4,
        window=4096,
        chosen_experts=8,
    ),
    "Phi3ForCausalLM": Family(
        "phi3",
        frozenset({"auto_map", "partial_rotary_factor"}),
        fused=True,
        windows="all",
        eps=1e-5,
        original_context=4096,
    ),
    "GemmaForCausalLM": GEMMA,
    "Gemma2ForCausalLM": GEMMA_2,
    "Gemma3ForCausalLM": replace(
        GEMMA_2,
        model_type="gemma3_text",
        supports=frozenset({"final_logit_softcapping"}),
        qk_norm="head",
        theta=1e6,
        local_theta=10_000.0,
        global_every=6,
        soft_caps=(0.0, 0.0),
    ),
    "Olmo2ForCausalLM": OLMO_2,
    "Olmo3ForCausalLM": replace(
        OLMO_2,
        model_type="olmo3",
        windows="some",
        theta=5e5,
        local_theta=5e5,
        window=4096,
        global_every=4,
    ),
    "SmolLM3ForCausalLM": Family(
        "smollm3",
        frozenset({"mlp_bias", "no_rope_layers"}),
        windows="some",
        window_is_opt_in=True,
        theta=2e6,
        kv_heads=4,
        tied=True,
    ),
    "GraniteForCausalLM": Family("granite", GRANITE_SCALES | {"mlp_bias"}),
    "Starcoder2ForCausalLM": Family(
        "starcoder2",
        norm="layer",
        bias_key="use_bias",
        gated=False,
        windows="all",
        eps_key="norm_epsilon",
        eps=1e-5,
        kv_heads=2,
        tied=True,
        activation="gelu_pytorch_tanh",
    ),
}

CAUSAL, STATES, SCORES = "ForCausalLM", "Model", "ForSequenceClassification"
# In transformers, two classes of Gemma 3's text model have a different stem.
BASES = {"Gemma3Text": "Gemma3"}


def family_of(architecture: str) -> tuple[Family | None, str]:
    """The family of a transformers class (None: unknown), and the ending of its name: ForCausalLM
    (a language head), Model (no head) or ForSequenceClassification (a classifier)."""
    for ending in (CAUSAL, STATES, SCORES):
        if architecture.endswith(ending):
            stem = architecture.removesuffix(ending)
            return FAMILIES.get(BASES.get(stem, stem) + CAUSAL), ending
    return None, CAUSAL


# Keys that only a family that supports them may set: key -> values that change nothing.
OPTIONAL_KEYS: dict[str, tuple[Any, ...]] = {
    "mlp_bias": (False,),
    "quantization_config": (),
    "compression_config": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "num_experts": (0,),
    "num_local_experts": (0,),
    "partial_rotary_factor": (1,),
    "attention_multiplier": (),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "no_rope_layers": ([],),
    "lm_head_bias": (False,),
    "use_bidirectional_attention": (False,),
    "is_causal": (True,),
}
