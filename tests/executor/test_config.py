"""Every spelling of config.json is read; what it asks for and we lack is refused by name."""

import json

import pytest

from headway.errors import CheckpointError, UnsupportedModelError
from headway.executor.config import FAMILIES, Rope, parse, read_config

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
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}


def test_defaults():
    config = parse(PLAIN, {})
    assert (config.head_dim, config.rope, config.eps) == (16, Rope(10_000.0), 1e-6)
    assert (config.tied, config.qkv_bias, config.out_bias, config.qk_norm) == (False,) * 4
    assert (config.dtype, config.eos, config.kv_elements) == ("float32", (), 2 * 3 * 2 * 16)
    assert parse(PLAIN | {"num_key_value_heads": None}, {}).kv_heads == 4


@pytest.mark.parametrize(
    ("own", "rope"),
    [
        ({"rope_theta": 5e5}, Rope(5e5)),
        ({"rope_theta": 1000, "rope_scaling": None}, Rope(1000.0)),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, Rope(5e5)),
        (
            {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
            Rope(5e5, 8.0, 1.0, 4.0, 64),
        ),
        (
            {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
            Rope(5e5, 8.0, 1.0, 4.0, 64),
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
            Rope(5e5, 8.0, 1.0, 4.0, 64),
        ),
    ],
)
def test_both_spellings_of_rope(own, rope):
    assert parse(PLAIN | own, {}).rope == rope


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_both_spellings_of_dtype(key):
    assert parse(PLAIN | {key: "bfloat16"}, {}).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("own", "generation", "eos"),
    [
        ({"eos_token_id": 2}, {}, (2,)),
        ({"eos_token_id": None}, {"eos_token_id": 7}, (7,)),
        ({"eos_token_id": 9}, {"eos_token_id": [9, 8, 1]}, (1, 8, 9)),
        ({"eos_token_id": [5, 3]}, {"eos_token_id": 4}, (3, 4, 5)),
    ],
)
def test_all_eos_ids_of_both_files(tmp_path, own, generation, eos):
    (tmp_path / "config.json").write_text(json.dumps(PLAIN | own))
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert read_config(tmp_path).eos == eos


def test_what_a_family_fixes():
    qwen2 = parse(PLAIN | QWEN, {})
    assert (qwen2.qkv_bias, qwen2.out_bias) == (True, False)
    llama = parse(PLAIN | {"attention_bias": True}, {})
    assert (llama.qkv_bias, llama.out_bias) == (True, True)
    qwen3 = parse(PLAIN | {"architectures": ["Qwen3ForCausalLM"]}, {})
    assert (qwen3.qk_norm, qwen3.head_dim) == (True, 128)
    unnamed = {key: value for key, value in PLAIN.items() if key != "architectures"}
    assert parse(unnamed | {"model_type": "qwen3"}, {}).architecture == "Qwen3ForCausalLM"


@pytest.mark.parametrize(
    "own",
    [
        MISTRAL | {"sliding_window": None},
        MISTRAL | {"sliding_window": 256},  # the whole context
        QWEN | {"sliding_window": 64, "use_sliding_window": False},
        QWEN | {"layer_types": ["full_attention"] * 3},
        {"mlp_bias": False, "quantization_config": None, "pretraining_tp": 2},
    ],
)
def test_harmless_settings_pass(own):
    parse(PLAIN | own, {})


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM.*LlamaForCausalLM"),
        ({"architectures": ["Qwen2MoeForCausalLM"]}, "Qwen2MoeForCausalLM"),
        ({"architectures": None, "model_type": "gpt2"}, "gpt2"),
        ({"architectures": [], "model_type": None}, "None"),
        ({"auto_map": {"AutoModelForCausalLM": "m.Model"}}, "auto_map.*never run"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "linear"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "full_attention"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        (MISTRAL | {"sliding_window": 128}, "sliding_window = 128"),
        (MISTRAL | {"max_position_embeddings": 32_768}, "sliding_window = 4096"),
        (QWEN | {"use_sliding_window": True, "sliding_window": 64}, "sliding_window = 64"),
        (QWEN | {"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"num_local_experts": 8}, "num_local_experts"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"attn_logit_softcapping": 30.0}, "attn_logit_softcapping"),
        ({"torch_dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
    ],
)
def test_what_we_lack_is_refused_by_name(own, named):
    with pytest.raises(UnsupportedModelError, match=named) as caught:
        parse(PLAIN | own, {})
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
        ({"eos_token_id": "</s>"}, "eos_token_id"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
    ],
)
def test_nonsense_is_named(own, named):
    with pytest.raises(CheckpointError, match=named):
        parse(PLAIN | own, {})


def test_unreadable_files(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        read_config(tmp_path)
    for text, named in (("{", "cannot be read"), ("[1]", "no JSON object"), ("\xff", "cannot be")):
        (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(CheckpointError, match=named) as caught:
            read_config(tmp_path)
        assert "\n" not in str(caught.value)


def test_the_families_are_those_we_promise():
    names = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
    assert tuple(FAMILIES) == names
