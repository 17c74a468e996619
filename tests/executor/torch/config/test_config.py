"""Every spelling of config.json is read, and unsupported features are refused by name."""

import json
from math import prod

import pytest
from transformers import AutoConfig

from headway.errors import CheckpointError, UnsupportedModelError
from headway.executor.torch.config.families import FAMILIES
from headway.executor.torch.config.model_config import Experts, examine, parse_config, read_config
from headway.executor.torch.config.positions import (
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    Rope,
    YarnScaling,
)
from headway.executor.torch.loading.tensor_names import tensor_shapes
from tests.executor.torch.tiny_checkpoints import MORE, SHAPES

PLAIN = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
QWEN = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
LONGROPE = {"rope_scaling": {"type": "longrope", "short_factor": [1] * 8, "long_factor": [9] * 8}}
PHI = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
GEMMA = {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2"}
GEMMA3 = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text"}
OLMO3 = {"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3"}
SMOL = {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3"}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}


SWITCH = {"sliding_window": 64, "use_sliding_window": True}
LONG = {"max_position_embeddings": 32_768}
STRETCHED = {  # from 256 to 1024
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
}
TYPES = ["full_attention", "sliding_attention", "full_attention"]
MOE = {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 8, "moe_intermediate_size": 8}


def ropes(config):
    return {layer.rope for layer in config.layer_attention}


def windows(config):
    return [layer.window for layer in config.layer_attention]


def test_absent_keys_of_config_json_have_defaults():
    config = parse_config(PLAIN, {})
    assert (config.head_dim, ropes(config), config.eps) == (16, {Rope(10_000.0)}, 1e-6)
    assert (config.tied, config.qkv_bias, config.out_bias, config.mlp_bias) == (False,) * 4
    assert windows(config) == [0, 0, 0] and config.scales.scores == 0.25
    assert (config.dtype, config.eos, config.kv_elements) == ("float32", (), 2 * 3 * 2 * 16)
    assert parse_config(PLAIN | {"num_key_value_heads": None}, {}).kv_heads == 4


@pytest.mark.parametrize(
    ("own", "rope"),
    [
        ({"rope_theta": 5e5}, Rope(5e5)),
        ({"rope_theta": 1000, "rope_scaling": None}, Rope(1000.0)),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, Rope(5e5)),
        (
            {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
            Rope(5e5, Llama3Scaling(8.0, 1.0, 4.0, 64)),
        ),
        (
            {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
            Rope(5e5, Llama3Scaling(8.0, 1.0, 4.0, 64)),
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
            Rope(5e5, Llama3Scaling(8.0, 1.0, 4.0, 64)),
        ),
    ],
)
def test_both_spellings_of_rope_are_read(own, rope):
    assert ropes(parse_config(PLAIN | own, {})) == {rope}


YARN = {"rope_type": "yarn", "factor": 4.0}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("own", "rope", "context"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, Rope(1e4, LinearScaling(2.0)), 256),
        # Nothing changes inside the context, and no sequence goes beyond it.
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, Rope(1e4), 256),
        (
            {"rope_scaling": YARN},
            Rope(1e4, YarnScaling(4.0, 256), attention_factor=1.1386294361119891),
            256,
        ),
        # The length before the stretching is given; the context is the length after it.
        (
            {"rope_scaling": YARN | {"original_max_position_embeddings": 256}},
            Rope(1e4, YarnScaling(4.0, 256), attention_factor=1.1386294361119891),
            1024,
        ),
        (
            {"rope_parameters": YARN | {"attention_factor": 1.0, "truncate": False}},
            Rope(1e4, YarnScaling(4.0, 256, rounded=False)),
            256,
        ),
        (
            {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 8}},
            Rope(1e4, YarnScaling(4.0, 256, fast=8.0)),
            256,
        ),
        (
            {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0}},
            Rope(1e4, YarnScaling(4.0, 256), attention_factor=1.1386294361119891),
            256,
        ),
        (
            {"rope_scaling": YARN | {"original_max_position_embeddings": 256.0}},
            Rope(1e4, YarnScaling(4.0, 256), attention_factor=1.1386294361119891),
            1024,
        ),
        (
            {"rope_scaling": LLAMA3 | {"type": "llama3", "original_max_position_embeddings": 32.0}},
            Rope(1e4, Llama3Scaling(8.0, 1.0, 4.0, 32)),
            256,
        ),
    ],
)
def test_scalings_of_rope_are_read(own, rope, context):
    config = parse_config(PLAIN | own, {})
    assert ropes(config) == {rope} and config.context == context


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])
def test_longrope_offers_the_original_context_only(kind):
    own = {"rope_scaling": {"type": kind, "short_factor": [1, 2], "long_factor": [9, 9]}}
    own |= {"original_max_position_embeddings": 16, "partial_rotary_factor": 0.25}
    config = parse_config(PLAIN | PHI | own, {})
    assert ropes(config) == {Rope(1e4, LongRopeScaling((1.0, 2.0)), 0.25, attention_factor=2**0.5)}
    assert config.context == 16


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_both_spellings_of_dtype_are_read(key):
    assert parse_config(PLAIN | {key: "bfloat16"}, {}).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("own", "generation", "eos"),
    [
        ({"eos_token_id": 2}, {}, (2,)),
        ({"eos_token_id": None}, {"eos_token_id": 7}, (7,)),
        ({"eos_token_id": 9}, {"eos_token_id": [9, 8, 1]}, (1, 8, 9)),
        ({"eos_token_id": [5, 3]}, {"eos_token_id": 4}, (3, 4, 5)),
        ({"eos_token_id": -1}, {"eos_token_id": [-1, 4]}, (4,)),
        ({"eos_token_id": 99}, {"eos_token_id": [100, 128_001]}, (99,)),
    ],
)
def test_eos_ids_are_read_from_both_files(tmp_path, own, generation, eos):
    (tmp_path / "config.json").write_text(json.dumps(PLAIN | own))
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert read_config(tmp_path).eos == eos


def test_a_family_fixes_biases_and_norms():
    qwen2 = parse_config(PLAIN | QWEN, {})
    assert (qwen2.qkv_bias, qwen2.out_bias) == (True, False)
    llama = parse_config(PLAIN | {"attention_bias": True}, {})
    assert (llama.qkv_bias, llama.out_bias) == (True, True)
    qwen3 = parse_config(PLAIN | {"architectures": ["Qwen3ForCausalLM"]}, {})
    assert (qwen3.family.qk_norm, qwen3.head_dim) == ("head", 128)
    unnamed = {key: value for key, value in PLAIN.items() if key != "architectures"}
    assert parse_config(unnamed | {"model_type": "qwen3"}, {}).architecture == "Qwen3ForCausalLM"


@pytest.mark.parametrize(
    ("own", "seen"),
    [
        (MISTRAL | {"sliding_window": 128}, [128] * 3),
        (MISTRAL | LONG, [4096] * 3),
        (PHI | {"sliding_window": 64}, [64] * 3),
        (QWEN | {"sliding_window": 64}, [0, 0, 0]),
        (QWEN | LONG | {"use_sliding_window": True, "max_window_layers": 2}, [0, 0, 4096]),
        (QWEN | SWITCH, [0, 0, 0]),  # max_window_layers is 28
        (QWEN | SWITCH | {"max_window_layers": 1}, [0, 64, 64]),
        (QWEN | SWITCH | {"max_window_layers": 0}, [64, 64, 64]),
        (QWEN | SWITCH | {"layer_types": TYPES}, [0, 64, 0]),
        (QWEN | SWITCH | {"layer_types": TYPES, "sliding_window": 256}, [0, 0, 0]),
        (GEMMA | {"sliding_window": 8}, [8, 0, 8]),
        (GEMMA | {"sliding_window": 8, "layer_types": TYPES}, [0, 8, 0]),
        (GEMMA3 | {"sliding_window": 8}, [8, 8, 8]),
        (GEMMA3 | {"sliding_window": 8, "sliding_window_pattern": 3}, [8, 8, 0]),
        (MISTRAL | STRETCHED | {"sliding_window": 256}, [256] * 3),
        (MISTRAL | STRETCHED | {"sliding_window": 1024}, [0, 0, 0]),
        (GEMMA | STRETCHED | {"sliding_window": 300}, [300, 0, 300]),
        (SMOL, [0, 0, 0]),
        (SMOL | SWITCH | {"no_rope_layers": [1, 0, 1]}, [0, 64, 0]),
    ],
)
def test_sliding_windows_are_read_by_layer(own, seen):
    assert windows(parse_config(PLAIN | own, {})) == seen


def test_rope_is_read_by_layer():
    old = GEMMA3 | {"sliding_window": 8, "sliding_window_pattern": 3}
    old |= {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_local_base_freq": 50.0}
    local, last = Rope(50.0), Rope(1e6, LinearScaling(8.0))
    assert [layer.rope for layer in parse_config(PLAIN | old, {}).layer_attention] == [
        local,
        local,
        last,
    ]
    new = GEMMA3 | {"layer_types": TYPES, "rope_parameters": {TYPES[0]: {"rope_theta": 7.0}}}
    assert [layer.rope for layer in parse_config(PLAIN | new, {}).layer_attention] == [
        Rope(7.0),
        Rope(10_000.0),
        Rope(7.0),
    ]
    new |= {"rope_local_base_freq": 50.0, "rope_scaling": {"type": "linear", "factor": 8.0}}
    assert [layer.rope for layer in parse_config(PLAIN | new, {}).layer_attention] == [
        Rope(7.0, LinearScaling(8.0)),
        Rope(50.0),
        Rope(7.0, LinearScaling(8.0)),
    ]
    smol = SMOL | {"no_rope_layer_interval": 2}
    assert [layer.rope for layer in parse_config(PLAIN | smol, {}).layer_attention] == [
        Rope(2e6),
        None,
        Rope(2e6),
    ]


def test_null_caps_mean_no_cap_and_absent_caps_take_the_familys_default():
    for own, caps in (
        ({}, (50.0, 30.0)),
        ({"attn_logit_softcapping": None}, (0.0, 30.0)),
        ({"attn_logit_softcapping": 20.0, "final_logit_softcapping": None}, (20.0, 0.0)),
    ):
        scales = parse_config(PLAIN | GEMMA | own, {}).scales
        assert (scales.scores_cap, scales.logits_cap) == caps
        assert (scales.scores, scales.embedding) == (1 / 16, 8.0)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_keys_that_config_json_lacks_default_as_in_transformers(architecture):
    """transformers' config classes write out every default. headway must read the same."""
    kind = FAMILIES[architecture].model_type
    own = {key: value for key, value in PLAIN.items() if key != "num_key_value_heads"}
    own |= {"architectures": [architecture], "model_type": kind, "num_attention_heads": 32}
    own |= {"max_position_embeddings": 8192, "hidden_size": 512, "num_hidden_layers": 8}
    own |= {"num_experts": 16, "moe_intermediate_size": 8} if kind == "qwen3_moe" else {}
    own |= {"num_local_experts": 16} if kind == "mixtral" else {}
    own |= LONGROPE if kind == "phi3" else {}
    written = AutoConfig.for_model(**own).to_dict()
    assert "num_key_value_heads" in written
    written |= {"architectures": [architecture], "dtype": "float32", "eos_token_id": None}
    assert parse_config(own, {}) == parse_config(written, {})


def test_keys_of_gemma_3_are_ignored_in_other_families():
    own = {"sliding_window": 8, "sliding_window_pattern": 3, "rope_local_base_freq": 50.0}
    for family in (GEMMA, OLMO3):
        assert parse_config(PLAIN | family | own, {}) == parse_config(
            PLAIN | family | {"sliding_window": 8}, {}
        )


def test_expert_settings_are_read_from_config_json():
    mixtral = {"architectures": ["MixtralForCausalLM"], "num_local_experts": 8}
    assert parse_config(PLAIN | mixtral, {}).experts == Experts(8, 2, True)
    qwen = {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 9, "moe_intermediate_size": 7}
    found = parse_config(PLAIN | qwen | {"num_experts_per_tok": 3}, {})
    assert (found.experts, found.intermediate) == (Experts(9, 3, False), 7)


def test_every_reason_for_a_refusal_is_given():
    own = {"quantization_config": {"bits": 4}, "hidden_act": "relu", "torch_dtype": "float8"}
    config, reasons = examine(PLAIN | own, {})
    assert config is not None and config.layers == 3
    assert [reason.split()[0] for reason in reasons] == [
        "quantization_config",
        "hidden_act",
        "dtype",
    ]
    assert examine(PLAIN | {"architectures": ["T5"]} | own, {})[0] is None


@pytest.mark.parametrize(
    "own",
    [
        MISTRAL | {"sliding_window": None},
        MISTRAL | {"sliding_window": 256},  # the whole context
        QWEN | {"sliding_window": 64, "use_sliding_window": False},
        QWEN | {"layer_types": ["full_attention"] * 3},
        {"hidden_act": "gelu_pytorch_tanh", "mlp_bias": True},
        {"mlp_bias": False, "quantization_config": None, "pretraining_tp": 2},
        {"is_causal": True},
        GEMMA3 | {"rope_parameters": {}},
        {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": LINEAR},
    ],
)
def test_harmless_settings_pass(own):
    parse_config(PLAIN | own, {})


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"architectures": ["FalconForCausalLM"]}, "FalconForCausalLM.*LlamaForCausalLM"),
        ({"architectures": ["Gemma3ForConditionalGeneration"]}, "Gemma3ForConditionalGeneration"),
        ({"architectures": ["Qwen2MoeForCausalLM"]}, "Qwen2MoeForCausalLM"),
        ({"architectures": None, "model_type": "gpt2"}, "gpt2"),
        ({"architectures": [], "model_type": None}, "None"),
        ({"auto_map": {"AutoModelForCausalLM": "m.Model"}}, "auto_map.*never run"),
        ({"rope_scaling": {"rope_type": "proportional", "factor": 2.0}}, "proportional"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "full_attention"),
        (GEMMA | {"rope_parameters": {"chunked_attention": {"rope_theta": 1.0}}}, "chunked"),
        (
            GEMMA3 | {"rope_parameters": {"rope_theta": 5e4}},
            "rope_parameters without full_attention",
        ),
        (
            OLMO3 | {"rope_parameters": {"rope_theta": 5e4}},
            "rope_parameters without full_attention",
        ),
        (
            {"rope_scaling": YARN, "rope_parameters": {"rope_type": "default"}},
            "rope_scaling has rope_type = 'yarn' and rope_parameters has 'default'",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 8.0}, "rope_parameters": LINEAR},
            "rope_scaling has factor = 8.0 and rope_parameters has 2.0",
        ),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"sliding_window": 128}, "sliding_window = 128"),
        (STRETCHED | {"sliding_window": 512}, "sliding_window = 512"),
        ({"layer_types": TYPES}, "sliding_attention"),
        (QWEN | {"layer_types": ["full_attention", "chunked_attention"]}, "chunked_attention"),
        (QWEN | {"mlp_bias": True}, "mlp_bias"),
        (GEMMA3 | {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping"),
        (GEMMA | {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        (QWEN | {"is_causal": False}, "is_causal = False"),
        (QWEN | {"architectures": ["Qwen2Model"], "is_causal": False}, "is_causal = False"),
        (MOE | {"mlp_only_layers": [0]}, "mlp_only_layers"),
        (MOE | {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"num_local_experts": 8}, "num_local_experts"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"attn_logit_softcapping": 30.0}, "attn_logit_softcapping"),
        ({"torch_dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
    ],
)
def test_unsupported_features_are_refused_by_name(own, named):
    with pytest.raises(UnsupportedModelError, match=named) as caught:
        parse_config(PLAIN | own, {})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size = 'many'"),
        ({"num_key_value_heads": 3}, "multiple of 3"),
        ({"head_dim": 15}, "head_dim"),
        ({"rms_norm_eps": -1}, "rms_norm_eps"),
        ({"eos_token_id": "</s>"}, r"^config\.json: eos_token_id"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        (PHI | {"rope_scaling": {"type": "longrope"}}, "short_factor"),
        (PHI | {"partial_rotary_factor": 0.7}, "even head_dim"),
        (PHI | {"rope_scaling": {"type": "su", "short_factor": [1]}}, "has 1 factors for 8 pairs"),
        (MISTRAL | {"sliding_window": -1}, "sliding_window"),
        (
            QWEN | SWITCH | {"max_window_layers": -1},
            "max_window_layers = -1.*positive integer or 0",
        ),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000 must be at most 1000"),
        (QWEN | {"layer_types": TYPES}, "no window"),
        (QWEN | {"layer_types": TYPES[:2]}, "layer_types.*all 3"),
        (SMOL | {"no_rope_layers": [1]}, "no_rope_layers.*all 3"),
        (MOE | {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"architectures": "LlamaForCausalLM"}, "architectures.*a list"),
        ({"model_type": ["llama"]}, r"model_type = \['llama'\] must be a text"),
        ({"architectures": ["LlamaForSequenceClassification"], "num_labels": "x"}, "num_labels"),
        ({"architectures": ["LlamaForSequenceClassification"], "num_labels": [1]}, "num_labels"),
        (
            {"architectures": ["LlamaForSequenceClassification"], "num_labels": 10**30},
            "num_labels = 1000000000000000000000000000000 must be at most 100000",
        ),
        ({"architectures": ["LlamaForSequenceClassification"], "id2label": [1]}, "id2label"),
        (
            PHI | {"original_max_position_embeddings": 1, "rope_scaling": {"type": "su"}},
            "original_max_position_embeddings = 1.0 must be above 1",
        ),
        (PHI | {"partial_rotary_factor": 2.0}, r"partial_rotary_factor = 2\.0 must be at most 1"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps = nan must be a positive number"),
        ({"rope_theta": float("inf")}, "rope_theta = inf must be a positive number"),
        ({"rope_theta": 10**400}, "rope_theta = 1000.* must be a positive number"),
    ],
)
def test_invalid_values_are_named(own, named):
    with pytest.raises(CheckpointError, match=named):
        parse_config(PLAIN | own, {})


def test_an_invalid_eos_token_id_is_named_with_its_file():
    with pytest.raises(CheckpointError, match=r"^generation_config\.json: eos_token_id = 'x'"):
        parse_config(PLAIN, {"eos_token_id": ["x"]})


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        read_config(tmp_path)
    for text, named in (
        ("{", "cannot be read"),
        ("[1]", "not a JSON object"),
        ("\xff", "cannot be"),
    ):
        (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(CheckpointError, match=named) as caught:
            read_config(tmp_path)
        assert "\n" not in str(caught.value)


ADOPTED = {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}


def test_phi_3_may_name_its_own_remote_code_which_is_never_run():
    parse_config(PLAIN | PHI | {"auto_map": ADOPTED}, {})
    other = {"AutoModelForCausalLM": "modeling_phi3.Phi3SmallForCausalLM"}
    for own in (PHI | {"auto_map": other}, {"auto_map": ADOPTED}):
        with pytest.raises(UnsupportedModelError, match=r"auto_map.*never run"):
            parse_config(PLAIN | own, {})


# The hub's counts for these checkpoints: hidden, intermediate, layers, heads, KV heads, vocab.
COUNTED = {
    "Llama-3-8B": (8_030_261_248, "Llama", (4096, 14336, 32, 32, 8, 128256), {}),
    "Mistral-7B-v0.1": (7_241_732_096, "Mistral", (4096, 14336, 32, 32, 8, 32000), {}),
    "Mixtral-8x7B": (
        46_702_792_704,
        "Mixtral",
        (4096, 14336, 32, 32, 8, 32000),
        {"num_local_experts": 8},
    ),
    "Qwen2.5-0.5B": (
        494_032_768,
        "Qwen2",
        (896, 4864, 24, 14, 2, 151936),
        {"tie_word_embeddings": True},
    ),
    "Qwen3-30B-A3B": (
        30_532_122_624,
        "Qwen3Moe",
        (2048, 6144, 48, 32, 4, 151936),
        {"num_experts": 128, "moe_intermediate_size": 768, "head_dim": 128},
    ),
    "Phi-3-mini-4k": (3_821_079_552, "Phi3", (3072, 8192, 32, 32, 32, 32064), {}),
    "gemma-2b": (2_506_172_416, "Gemma", (2048, 16384, 18, 8, 1, 256000), {}),
    "gemma-2-2b": (2_614_341_888, "Gemma2", (2304, 9216, 26, 8, 4, 256000), {}),
    "gemma-3-1b": (999_885_952, "Gemma3", (1152, 6912, 26, 4, 1, 262144), {}),
    "OLMo-2-7B": (7_298_617_344, "Olmo2", (4096, 11008, 32, 32, 32, 100352), {}),
    "SmolLM3-3B": (3_075_098_624, "SmolLM3", (2048, 11008, 36, 16, 4, 128256), {}),
    "granite-3.1-2b": (
        2_533_531_648,
        "Granite",
        (2048, 8192, 40, 32, 8, 49155),
        {"tie_word_embeddings": True},
    ),
    "starcoder2-3b": (3_030_371_328, "Starcoder2", (3072, 12288, 30, 24, 2, 49152), {}),
}
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
SIZES += ("num_key_value_heads", "vocab_size")


@pytest.mark.parametrize("name", COUNTED)
def test_known_checkpoints_have_their_number_of_parameters(name):
    count, family, sizes, own = COUNTED[name]
    raw = dict(zip(SIZES, sizes, strict=True)) | own | {"max_position_embeddings": 4096}
    config = parse_config(raw | {"architectures": [family + "ForCausalLM"]}, {})
    assert sum(map(prod, tensor_shapes(config).values())) == count


def test_every_family_is_golden_tested():
    tested = {family for family, _ in (SHAPES | MORE).values()}
    assert tested == {family.model_type for family in FAMILIES.values()}
