"""Data sheets as cost models: their order of magnitude, their refusals and their marks."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

pytest.importorskip("torch")

from headway.commands.calibrate.calibrate import CalibrateOptions, run_calibrate
from headway.core.cost.features import Features, row_features
from headway.costing.calibration import read_cost_file
from headway.costing.datasheet import (
    analytical_calibration,
    model_work,
    read_accelerator,
    read_shape,
)
from headway.errors import MemoryPlanError, SettingError
from headway.executor.torch.config.model_config import parse_config
from headway.executor.torch.memory.memory_plan import (
    GATHER_BUDGET_ELSEWHERE,
    Limits,
    plan_memory,
)
from headway.models import EMBEDDED


def test_the_cost_of_8_billion_parameters_on_an_h100_has_the_published_magnitude():
    """7 ms a step, 35 us a prompt token, 47 ns per token read, as in the literature's fits."""
    found = analytical_calibration(
        read_shape("llama-3.1-8b"), read_accelerator("h100-sxm"), "llama-3.1-8b"
    )
    alone, prompt = row_features(500, 1, logits=1), row_features(0, 2_048, logits=1)
    assert 5e6 < found.cost.predict(alone) < 9e6
    assert 20e6 < found.cost.pieces[1][1] < 50e6
    assert 30_000 < found.cost.device.read < 65_000
    assert 100 < found.cost.knee < 400
    assert found.cost.predict(prompt) > 8 * found.cost.predict(alone)
    middle = row_features(500, 1)  # a chunk: nothing is sampled, no output layer is needed
    assert 0.92 < found.cost.predict(middle) / found.cost.predict(alone) < 0.96
    assert found.analytical and found.kv_bytes == 131_072
    held = found.num_blocks * found.block_size * found.kv_bytes
    assert 0.3 * 80e9 < held < 80e9 - 15e9
    few = analytical_calibration(
        read_shape("llama-3.1-8b"), read_accelerator("h100-sxm"), "llama-3.1-8b", slots=16
    )
    assert few.num_blocks == 16 * 8_192 // 16, "as much as sixteen requests can use"
    assert 0.5 * 64e9 < few.fit * few.block_size * few.kv_bytes < 64e9, "beside 16 GB of weights"


def test_a_shape_has_the_number_of_weights_in_its_name():
    for name, billions in (("llama-3.1-8b", 8.03), ("llama-3.1-70b", 70.6), ("qwen2.5-7b", 7.62)):
        config = read_shape(name)
        table = 0 if config.tied else config.vocab * config.hidden
        assert (model_work(config).weights / 2 + table) / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_step_reads_the_experts_that_its_tokens_choose(tmp_path):
    """Qwen3-30B-A3B: each token chooses 8 of 128 experts in each of 48 layers."""
    raw = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "vocab_size": 151_936,
        "hidden_size": 2_048,
        "num_hidden_layers": 48,
        "head_dim": 128,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "hidden_act": "silu",
        "intermediate_size": 6_144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "max_position_embeddings": 40_960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": False,
    }
    config = parse_config(raw, {})
    work, sheet = model_work(config), read_accelerator("h100-sxm")
    cost = analytical_calibration(config, sheet, "moe").cost
    experts = 48 * 128 * 3 * 2_048 * 768 * 2  # bytes
    assert work.experts == experts and work.held == pytest.approx(2 * 30.5e9, rel=0.01)
    assert work.flops + work.head == pytest.approx(2 * 3.0e9, rel=0.05), "the A3B of its name"
    for tokens in (1, 2, 4, 16, 64, 256):
        chosen = 1 - (1 - 8 / 128) ** tokens
        read = (work.weights - experts + chosen * experts) / (3.35e12 * 0.8)
        step = cost.predict(Features(tokens, tokens, logits=tokens, decodes=1)) / 1e9
        logits = tokens * work.head / (989e12 * 0.45)
        assert step == pytest.approx(read + logits + 1e-3, rel=1e-3)
    full = cost.predict(Features(4_096, 1, 1)) / 1e9
    assert full == pytest.approx(4_096 * work.flops / (989e12 * 0.45), rel=0.05)


def test_kv_blocks_have_what_all_weights_leave_the_embedding_included():
    """Llama-3.1-8B has 8.03 billion weights, of which a step reads 7.5 billion."""
    shape, sheet = read_shape("llama-3.1-8b"), read_accelerator("rtx-4090")
    made, weights = analytical_calibration(shape, sheet, "llama-3.1-8b"), 2 * 8_030_261_248
    limits, left = Limits(256, context=8_192), 24_000_000_000 - weights
    plan = plan_memory(shape, limits, 2, weights, left, GATHER_BUDGET_ELSEWHERE)
    assert (made.num_blocks, made.fit) == (plan.num_blocks, plan.fit)
    with pytest.raises(MemoryPlanError, match=r"weighs 15\.0 GiB, and rtx-4090 has 14\.4"):
        analytical_calibration(shape, replace(sheet, memory=15.5), "llama-3.1-8b")


def test_an_accelerator_faster_on_its_data_sheet_is_faster_in_the_model():
    config, step = read_shape("qwen2.5-7b"), row_features(100, 1, logits=1)
    times = [
        analytical_calibration(config, read_accelerator(name), "qwen2.5-7b").cost.predict(step)
        for name in ("l4", "rtx-4090", "a100-80gb", "h100-sxm", "h200", "mi300x")
    ]
    assert times == sorted(times, reverse=True)


def test_refusals_name_the_nearest_name(tmp_path):
    with pytest.raises(SettingError, match="did you mean h200"):
        read_accelerator("h20")
    with pytest.raises(SettingError, match="did you mean llama"):
        read_shape("llama-3.1-8")
    with pytest.raises(MemoryPlanError, match="larger accelerator"):
        analytical_calibration(
            read_shape("llama-3.1-70b"), read_accelerator("h100-sxm"), "llama-3.1-70b"
        )
    mine = tmp_path / "mine.yaml"
    mine.write_text("box: {memory: 10, bandwidth: 100}\nodd: {memory: 10, speed: 3}\n")
    with pytest.raises(SettingError, match="there is no products"):
        read_accelerator("box", mine)
    with pytest.raises(SettingError, match="'speed' is not known"):
        read_accelerator("odd", mine)


def test_an_accelerator_may_be_named_by_a_number(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("4090: {memory: 24, bandwidth: 1008, products: 165}\n")
    assert read_accelerator("4090", mine).memory == 24
    with pytest.raises(SettingError, match="did you mean 4090"):
        read_accelerator("4080", mine)


def test_the_cost_file_of_a_folder_has_its_name_and_not_its_path(tmp_path):
    folder, out = tmp_path / "my-model", tmp_path / "cost.json"
    folder.mkdir()
    (folder / "config.json").write_text((EMBEDDED / "config.json").read_text())
    asked = CalibrateOptions(model=str(folder), accelerator="l4", out=out)
    assert run_calibrate(asked, Console(file=StringIO())) == 0
    assert read_cost_file(out).model == "my-model"


def test_an_accelerator_has_256_slots_by_default(tmp_path):
    out = tmp_path / "cost.json"
    asked = CalibrateOptions(model="llama-3.1-8b", accelerator="h100-sxm", out=out)
    assert run_calibrate(asked, Console(file=StringIO())) == 0
    full = read_cost_file(out)
    assert full.slots == 256 and full.num_blocks == full.fit, "all the memory that there is"
    assert run_calibrate(replace(asked, slots=16), Console(file=StringIO())) == 0
    assert read_cost_file(out).slots == 16


def test_the_command_line_takes_a_users_own_data_sheet(tmp_path):
    mine, out = tmp_path / "mine.yaml", tmp_path / "cost.json"
    mine.write_text("box: {memory: 10, bandwidth: 100, products: 20, price: 0.2}\n")
    asked = CalibrateOptions(model="qwen2.5-0.5b", accelerator="box", accelerators=mine, out=out)
    console = Console(width=100, record=True, file=StringIO())
    assert run_calibrate(asked, console) == 0
    found = read_cost_file(out)
    assert found.analytical and found.price_per_hour == 0.2 and found.device == "box"
    assert "computed, not measured" in console.export_text()
