"""`headway check` agrees with loading, and needs no weights, no torch and less than a second."""

import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from headway import LLM
from headway.commands.check import check, run_check
from headway.errors import CheckpointError, HeadwayError, SettingError
from headway.executor.load import load as load_executor
from headway.executor.precision import with_quantize
from headway.executor.torch.config.model_config import read_config
from headway.executor.torch.load import load
from headway.executor.torch.loading import weight_bytes
from headway.executor.torch.memory.memory_plan import Limits, gather_budget, plan_memory
from headway.models import EMBEDDED
from headway.server.config.config import ServerConfig
from tests.tiny_encoders import make_encoder

GIB = 1 << 30
# The keys of their config.json that matter here.
MISTRAL = {
    "architectures": ["MistralForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
    "torch_dtype": "bfloat16",
}
MIXTRAL = MISTRAL | {
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}


def test_check_describes_an_encoder_and_agrees_with_loading(tmp_path):
    out = io.StringIO()
    bert = make_encoder(tmp_path / "bert", "bert")
    assert run_check(str(bert), None, None, "", False, Console(file=out, width=80)) == 0
    text = out.getvalue()
    for part in ("BertModel, an encoder: it makes embeddings", "40 tokens", "mean (the card"):
        assert part in text
    cross = make_encoder(tmp_path / "cross", "roberta", 1)
    out = io.StringIO()
    assert run_check(str(cross), None, None, "", True, Console(file=out)) == 0
    said = json.loads(out.getvalue())
    loaded = load_executor("torch", cross, Limits())
    assert (said["supported"], said["encoder"]["makes"]) == (True, "scores of pairs")
    assert said["encoder"]["weights"] == loaded.plan.weights
    assert said["encoder"]["context"] == loaded.plan.context
    euro = make_encoder(tmp_path / "euro", "eurobert", 2)
    (euro / "tokenizer.json").unlink()
    out = io.StringIO()
    assert run_check(str(euro), None, None, "", True, Console(file=out)) == 1
    reasons = ["the head of eurobert is not computed", f"{euro} has no tokenizer.json"]
    assert json.loads(out.getvalue())["reasons"] == reasons
    (bert / "model.safetensors").write_bytes(b"12345678")
    with pytest.raises(CheckpointError, match="is damaged or cut short"):
        run_check(str(bert), None, None, "", False, Console(file=io.StringIO()))


def cut_a_tensor(folder):
    kept = load_file(folder / "model.safetensors")
    del kept["embeddings.LayerNorm.bias"]
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def change(**own):
    def changed(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | own))

    return changed


@pytest.mark.parametrize(
    ("damage", "asked", "why"),
    [
        (cut_a_tensor, {}, "lacks the tensor embeddings.LayerNorm.bias"),
        (change(hidden_size=96), {}, "cannot be read"),
        (change(vocab_size=10), {}, "cannot be read"),
        (change(hidden_act="foo"), {}, "cannot be read: 'foo'"),
        (lambda folder: (folder / "model.safetensors").unlink(), {}, "no .*model.safetensors"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), {}, "tokenizer cannot be"),
        (lambda folder: None, {"dtype": "foo"}, "dtype must be one of float32, bfloat16"),
        (lambda folder: None, {"quantize": "int8"}, "weights are not quantized to int8"),
    ],
)
def test_check_refuses_an_encoder_that_loading_refuses(tmp_path, damage, asked, why):
    folder = make_encoder(tmp_path / "bert", "bert")
    damage(folder)
    with pytest.raises(HeadwayError, match=why):
        LLM(folder, **asked)
    assert_check_refuses(folder, why, **asked)


def assert_check_refuses(folder, why, dtype="", quantize=""):
    """The check gives a reason that matches, or raises the error that loading raises."""
    out = io.StringIO()
    try:
        precision = with_quantize(dtype, quantize)
        status = run_check(str(folder), None, None, precision, False, Console(file=out, width=400))
    except HeadwayError as error:
        status, text = 1, str(error)
    else:
        text = out.getvalue()
    assert status == 1 and re.search(why, text)


def test_lengths_of_an_encoders_texts_are_checked_against_its_context(tmp_path):
    folder = str(make_encoder(tmp_path / "bert", "bert"))
    out = Console(file=io.StringIO())
    assert run_check(folder, 40, None, "bfloat16", False, out) == 0
    with pytest.raises(SettingError, match="41 prompt tokens must be 1 to 40, the model's context"):
        run_check(folder, 41, None, "", False, out)
    with pytest.raises(SettingError, match="an encoder generates nothing"):
        run_check(folder, None, 5, "", False, out)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"tokenizer.json": ""}, r"has no tokenizer\.json"),
        ({"tokenizer.json": "{}"}, "the tokenizer cannot be read"),
        ({"tokenizer_config.json": '{"chat_template": 5}'}, "chat_template = 5 is not a text"),
        (
            {"config_sentence_transformers.json": '{"prompts": {"q": "<|user|>"}}'},
            "the prompt 'q' has a special token",
        ),
        (
            {
                "modules.json": json.dumps(
                    [{"type": "x.Pooling", "path": "1"}, {"type": "x.Dense", "path": "2"}]
                ),
                "1/config.json": '{"pooling_mode_lasttoken": true}',
                "2/config.json": '{"in_features": 256, "out_features": 8}',
            },
            "is missing: a dense layer's weights",
        ),
    ],
)
def test_check_refuses_a_decoders_files_that_loading_refuses(copy, files, why):
    folder = Path(copy())
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        if not text:
            (folder / name).unlink()
    with pytest.raises(CheckpointError, match=why):
        LLM(folder)
    assert_check_refuses(folder, why)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Check in bfloat16, whatever this machine is."""
    monkeypatch.setattr(
        "headway.executor.torch.config.model_config.has_fast_bfloat16", lambda: True
    )


@pytest.fixture
def free(monkeypatch):
    """Set how much memory is free, for both callers of the plan."""

    def be(amount):
        monkeypatch.setattr(
            "headway.commands.check.free_on_default_device", lambda: ("cpu", amount)
        )
        monkeypatch.setattr("headway.executor.torch.load.free_memory", lambda device: amount)

    be(64 * GIB)
    return be


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Put a config on a fake hub; its weights must not be fetched."""
    asked = []

    def put(config, **files):
        (tmp_path / "config.json").write_text(json.dumps(config))
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(EMBEDDED / name, tmp_path)
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
        return asked

    def fetch(source, allow_patterns):
        asked.extend(allow_patterns)
        return str(tmp_path)

    return put


@pytest.fixture
def copy(tmp_path):
    """A copy of the embedded checkpoint with some keys of its config changed."""

    def made(**own):
        folder = shutil.copytree(EMBEDDED, tmp_path / "copy", dirs_exist_ok=True)
        config = json.loads((EMBEDDED / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | own))
        return str(folder)

    return made


def said(model, *rest, as_json=False):
    """Run the command; return the exit status and the text."""
    out = io.StringIO()
    lengths = rest or (None, None)
    status = run_check(model, *lengths, "", as_json, Console(file=out, width=160))
    return status, out.getvalue()


def test_check_agrees_with_loading(free):
    """Loading sees the memory that is free beside the weights, the check all that is free."""
    verdict = check(None, 100, 28)
    shape, room = verdict.shape, verdict.room
    free(64 * GIB - shape.weights - room.second_head)
    loaded = load(EMBEDDED, Limits(32))
    plan, config = loaded.plan, loaded.config
    assert (room.fit, room.usable, room.blocks) == (plan.fit, plan.usable, plan.num_blocks)
    assert (room.activations, room.block_size) == (plan.activations, plan.block_size)
    assert (shape.dtype, shape.context) == (loaded.dtype, config.context)
    assert shape.kv_per_token * plan.block_size == plan.per_block
    assert shape.parameters == shape.active == sum(p.numel() for p in tensors(EMBEDDED))
    packed = loaded.executor.model.weights.head.weight is None
    assert plan.weights == shape.weights + (room.second_head if packed else 0)
    assert shape.tokenizer and shape.chat_template and shape.headers


def test_check_counts_the_blocks_that_llm_and_a_server_take_by_default(free):
    room = check(None, 100, 28).room
    with LLM() as llm:
        plan = llm.memory
    assert (room.blocks, room.usable) == (plan.num_blocks, plan.usable)
    of_a_server = load(EMBEDDED, Limits(ServerConfig().engine.slots)).plan
    assert of_a_server.num_blocks == room.blocks


def tensors(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors").values()


def test_the_largest_batch_fits_and_one_more_does_not(free):
    """Each sampled row takes memory too, so fewer blocks fit with more rows."""
    free(GIB)
    verdict, config = check(None, 100, 28), read_config(EMBEDDED)
    taken, count = verdict.shape.weights + verdict.room.second_head, verdict.room.batch

    def fit(sequences):
        limits = Limits(sequences)
        return plan_memory(config, limits, 2, taken, GIB - taken, gather_budget("cpu")).fit

    assert count > 1000 and fit(count) >= count * 8 and fit(count + 1) < (count + 1) * 8
    assert check(None, 0, 1).room.batch > count > check(None, 200, 56).room.batch


def test_check_prints_text_and_json(free):
    status, text = said(None, 512, 128)
    assert status == 0
    assert "3.0 KiB = 2 x 6 layers x 4 KV heads x 32 x 2 bytes (GQA)" in text
    for words in ("LlamaForCausalLM", "bound by limits", "64.0 GiB free (cpu)", "512 + 128 tokens"):
        assert words in text
    status, text = said(None, 512, 128, as_json=True)
    found = json.loads(text)
    assert status == 0 and found["supported"] and found["reasons"] == []
    assert found["model"] == "headway-tiny" and found["shape"]["kv_per_token"] == 3072
    assert f"{found['room']['batch']:,} requests of" in said(None, 512, 128)[1]


def test_a_sliding_window_saves_no_memory_and_check_says_so(free, hub):
    asked = hub(MISTRAL, chat_template__jinja="x")
    verdict = check("some/mistral", None, None)
    shape, room = verdict.shape, verdict.room
    assert (shape.parameters, shape.weights) == (7_241_732_096, 2 * 7_241_732_096)
    assert shape.kv_per_token == 2 * 32 * 8 * 128 * 2 == 128 * 1024
    assert (shape.windowed_layers, shape.context, room.bound) == (32, 32768, "memory")
    assert room.second_head == 0 and room.batch * 640 * shape.kv_per_token < 0.8 * 51 * GIB
    assert (shape.tokenizer, shape.chat_template, shape.headers) == (True, True, False)
    assert asked and not any("safetensors" in pattern for pattern in asked)
    status, text = said("some/mistral")
    assert status == 0 and "their headers were not read" in text
    assert "32 layers have a sliding window: it saves no memory here" in text


def test_all_experts_and_those_chosen_per_token_are_counted(free, hub):
    hub(MIXTRAL, tokenizer__json="{}")
    status, text = said("some/mixtral")
    assert status == 1 and "the weights take 87.0 GiB, and 64.0 GiB are free (cpu)" in text
    assert "46,702,792,704, 12,879,925,248 for one token" in text
    assert "the tokenizer cannot be read" in text, "every reason is given"


def test_one_kv_head_is_mqa_and_as_many_as_heads_is_mha(free, hub):
    for kv_heads, name in ((1, "MQA"), (8, "GQA"), (32, "MHA")):
        hub(MISTRAL | {"num_key_value_heads": kv_heads})
        assert check("some/mistral", 1, 1).shape.attention == name


def test_every_reason_against_a_checkpoint_is_given(copy):
    model = copy(hidden_act="relu", quantization_config={"bits": 4})
    status, text = said(model)
    lines = text.splitlines()
    assert status == 1 and len(lines) == 2 and all("would not run here" in line for line in lines)
    assert "quantization_config" in lines[0] and "hidden_act" in lines[1]
    status, text = said(model, as_json=True)
    found = json.loads(text)
    assert status == 1 and not found["supported"] and len(found["reasons"]) == 2
    status, text = said(copy(is_causal=False))
    assert status == 1 and "would not run here" in text and "is_causal = False" in text
    status, text = said(copy(architectures=["MambaForCausalLM"]))
    assert status == 1 and "MambaForCausalLM is not supported" in text


def test_a_model_that_does_not_fit_is_reported(free, monkeypatch):
    free(20 << 20)
    status, text = said(None)
    assert status == 1 and "do not fit" in text and "10.4 MiB in bfloat16" in text
    free(1 << 20)
    for built, taken in ((True, 10.4), (False, 12.4)):  # no second copy of the tied head, or one
        monkeypatch.setattr(weight_bytes, "can_be_built", lambda built=built: built)
        assert f"the weights take {taken} MiB, and 1.0 MiB are free" in said(None)[1]


def test_a_broken_checkpoint_is_an_error(copy, tmp_path):
    with pytest.raises(CheckpointError, match="is not a folder"):
        check(str(tmp_path / "nowhere"), None, None)
    with pytest.raises(CheckpointError, match="hidden_size"):
        check(copy(hidden_size=-1), None, None)
    with pytest.raises(CheckpointError, match=r"gate_proj.*\[704, 256\].*says \[700, 256\]"):
        check(copy(intermediate_size=700), None, None)
    sound = copy()
    (tmp_path / "copy" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        check(sound, None, None)


def test_lengths_must_fit_the_context(free):
    assert check(None, 2000, None).room.answer_tokens == 48
    assert check(None, None, 2000).room.prompt_tokens == 48
    for lengths in ((2000, 49), (3000, None), (None, 3000)):
        with pytest.raises(SettingError, match="are more than the model's context, 2048"):
            check(None, *lengths)
    for lengths in ((0, 0), (-1, 5)):
        with pytest.raises(SettingError, match="are no request"):
            check(None, *lengths)
    with pytest.raises(SettingError, match="int8"):
        check(None, None, None, "int8")


def test_a_given_dtype_is_used(free, monkeypatch):
    monkeypatch.setattr(weight_bytes, "can_be_built", lambda: True)
    kept = check(None, 10, 10, "float32").shape.weights
    monkeypatch.setattr(weight_bytes, "can_be_built", lambda: False)
    wide, narrow = check(None, 10, 10, "float32"), check(None, 10, 10)
    assert wide.shape.weights == 2 * narrow.shape.weights
    assert narrow.shape.weights < kept < 1.01 * narrow.shape.weights, "matrices stay in 16 bits"
    assert replace(narrow.shape, dtype="", weights=0, kv_per_token=0, kv_counted="") == replace(
        wide.shape, dtype="", weights=0, kv_per_token=0, kv_counted=""
    )


def test_check_does_not_import_torch_without_a_gpu_driver():
    """Without DRIVERS, the machine counts as one without a GPU driver."""
    code = "import sys; from headway.commands.check import check;"
    code += "from headway.executor.torch.memory import free_memory as memory;"
    code += "memory.DRIVERS = (); check(None, 1, 1); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_a_gpu_is_queried_only_if_there_is_a_driver(monkeypatch, tmp_path):
    from headway.executor.torch.memory import free_memory

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 9))
    monkeypatch.setattr(free_memory, "DRIVERS", (tmp_path,))
    assert free_memory.free_on_default_device() == ("cuda", 7)
    monkeypatch.setattr(free_memory, "DRIVERS", (tmp_path / "none",))
    assert free_memory.free_on_default_device()[0] == "cpu"
