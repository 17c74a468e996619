"""Models with windows are served through vLLM like all others. Models whose memory is not the keys
and values of each token are refused."""

import pytest
import transformers

from headway.errors import MemoryPlanError, SettingError
from headway.executor.load import BLOCK_SIZES, load
from headway.executor.torch.memory.memory_plan import Limits
from headway.models import EMBEDDED
from headway.runs.shared_executor import SharedExecutor
from tests.executor.torch.tiny_checkpoints import make
from tests.vllm.conftest import CONTEXT, EAGER, SIZES, load_both
from tests.vllm.test_vllm_golden import ASKED, STRATEGIES, serve

WINDOWED = {"gemma3": {"head_dim": 32}, "mistral-window": {"head_dim": 32}}


@pytest.mark.parametrize("shape", WINDOWED)
def test_models_with_windows_answer_as_transformers_in_one_group_of_blocks(shape, tmp_path):
    golden = make(tmp_path, shape, **(SIZES | WINDOWED[shape]))
    ours, theirs = load_both(golden.folder, CONTEXT)
    assert theirs.plan.per_block == 2 * 2 * 2 * 32 * 32 * 4, "layers, k and v, heads, cells"
    weights = sum(each.numel() * each.element_size() for each in golden.model.parameters())
    assert weights <= theirs.plan.weights < 1.05 * weights, "and the headers of the files"
    try:
        wanted = [golden.generate(*asked) for asked in ASKED]
        for executor in map(SharedExecutor, (ours.executor, theirs.executor)):
            for name in ("chunks-of-5", "chunks-of-100"):
                scheduler, said = serve(executor, STRATEGIES[name])
                assert said == wanted
                assert sum(row.preemptions for row in scheduler.ledger.requests) > 0
    finally:
        theirs.executor.close()


SMALL = {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 2}
NOT_YET = "are not served through vLLM yet"
OTHERS = {
    f"models with layers that keep a state .* {NOT_YET}": transformers.MambaConfig(
        **SMALL, state_size=16, architectures=["MambaForCausalLM"]
    ),
    f"models that take images or sound {NOT_YET}": transformers.PaliGemmaConfig(
        text_config={
            "model_type": "gemma",
            **SMALL,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "intermediate_size": 256,
        },
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 56,
            "patch_size": 14,
        },
        architectures=["PaliGemmaForConditionalGeneration"],
    ),
    f"models that generate nothing {NOT_YET}": transformers.BertConfig(
        **SMALL, num_attention_heads=4, intermediate_size=256, architectures=["BertModel"]
    ),
}


@pytest.mark.parametrize("words", OTHERS)
def test_state_multimodal_and_encoder_models_are_refused_at_load(words, tmp_path):
    OTHERS[words].save_pretrained(tmp_path)
    limits = Limits(2, 0, 128, BLOCK_SIZES["vllm"])
    with pytest.raises(SettingError, match=words):
        load("vllm", tmp_path, limits, "float32", "", EAGER | {"load_format": "dummy"})


def test_weights_are_counted_in_the_dtype_that_they_are_computed_in():
    limits = Limits(2, 0, 128, BLOCK_SIZES["vllm"], memory=16 << 20)  # in bfloat16 they take 10 MiB
    with pytest.raises(MemoryPlanError, match=r"the weights take 20\.\d MiB, and it has 16\.0 MiB"):
        load("vllm", EMBEDDED, limits, "float32", "", EAGER)
