"""Complete checkpoints are read from one file or many. The fault of a broken one is named."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from headway.errors import CheckpointError, MemoryPlanError, SettingError
from headway.executor.precision import Precision
from headway.executor.torch.config.model_config import read_config
from headway.executor.torch.load import load, load_random
from headway.executor.torch.loading.checkpoint import Checkpoint, locate
from headway.executor.torch.loading.weights import load_weights
from headway.models import EMBEDDED, display_name

CPU = torch.device("cpu")
FILE = "model.safetensors"
NORM = "model.norm.weight"


@pytest.fixture
def folder(golden, tmp_path):
    """A copy of the checkpoint to damage. Its head is tied."""
    return shutil.copytree(golden.folder, tmp_path / "copy")


def read(folder):
    return load_weights(folder, read_config(folder), torch.float32, CPU)


def rewrite(folder, change):
    """Save the checkpoint again with some tensors changed."""
    tensors = load_file(folder / FILE)
    change(tensors)
    save_file(tensors, folder / FILE)


def refused(folder, *named):
    with pytest.raises(CheckpointError) as caught:
        read(folder)
    message = str(caught.value)
    assert "\n" not in message and all(each in message for each in named), message


def test_shards_are_read_as_one_checkpoint(golden, tmp_path):
    golden.model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    whole, sharded = read(golden.folder), read(tmp_path)
    assert torch.equal(whole.embed.weight, sharded.embed.weight) and whole.nbytes == sharded.nbytes
    x = torch.randn(3, whole.embed.weight.shape[1])
    for a, b in zip(whole.layers, sharded.layers, strict=True):
        assert torch.equal(a.qkv(x), b.qkv(x)) and torch.equal(a.mlp(x), b.mlp(x))


def test_a_missing_or_incomplete_shard_is_named(golden, tmp_path):
    golden.model.save_pretrained(tmp_path, max_shard_size="40KB")
    index = tmp_path / "model.safetensors.index.json"
    claimed = json.loads(index.read_text())
    shards = sorted(tmp_path.glob("*.safetensors"))
    elsewhere = next(file.name for file in shards if file.name != claimed["weight_map"][NORM])
    index.write_text(json.dumps({"weight_map": claimed["weight_map"] | {NORM: elsewhere}}))
    refused(tmp_path, elsewhere, NORM, "index")
    index.write_text(json.dumps({"weight_map": claimed["weight_map"] | {NORM: "../away"}}))
    refused(tmp_path, NORM, "outside the folder")
    index.write_text("{}")
    refused(tmp_path, "weight_map")
    index.write_text(json.dumps(claimed))
    shards[1].unlink()
    refused(tmp_path, shards[1].name, "missing")


def test_damaged_files_are_named(folder):
    whole = (folder / FILE).read_bytes()
    for spoilt in (whole[:-100], whole[:50], b"", b"\xff" * 64, whole[:8] + b"x" + whole[9:]):
        (folder / FILE).write_bytes(spoilt)
        refused(folder, FILE, "damaged or cut short")


def test_tensors_of_a_wrong_name_shape_or_dtype_are_refused(folder):
    keep = (folder / FILE).read_bytes()
    for change, named in (
        (lambda t: t.pop(NORM), (NORM, "lacks")),
        (lambda t: t.update({NORM: torch.ones(47)}), (NORM, "[47]", "[48]")),
        (lambda t: t.update({NORM: torch.ones(48, dtype=torch.int8)}), (NORM, "I8")),
        (lambda t: t.update({"model.extra.weight": torch.ones(1)}), ("unexpected", "extra")),
        (lambda t: t.update({"lm_head.weight": torch.ones(211, 48)}), ("lm_head", "tie_word")),
        (lambda t: t.update({"lm_head.weight": torch.ones(3)}), ("lm_head", "tie_word")),
    ):
        (folder / FILE).write_bytes(keep)
        rewrite(folder, change)
        refused(folder, *named)


ATTENDED = [
    *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    *("self_attn.q_norm", "self_attn.k_norm"),
]


@pytest.mark.parametrize("part", ATTENDED)
@pytest.mark.parametrize("odd", [torch.nan, -torch.inf])
def test_nan_that_attention_would_hide_is_refused(goldens, tmp_path, part, odd):
    folder = shutil.copytree(goldens["qwen3-norms"].folder, tmp_path / "copy")
    name = f"model.layers.1.{part}.weight"
    rewrite(folder, lambda tensors: tensors[name].view(-1)[3:4].fill_(odd))
    refused(folder, FILE, name, "not finite")


def test_a_bias_of_queries_must_be_finite_and_an_unused_token_need_not(goldens, tmp_path):
    folder = shutil.copytree(goldens["qwen2-bias-tied"].folder, tmp_path / "copy")
    rewrite(folder, lambda tensors: tensors["model.embed_tokens.weight"][9].fill_(torch.nan))
    read(folder)
    name = "model.layers.0.self_attn.q_proj.bias"
    rewrite(folder, lambda tensors: tensors[name][:1].fill_(torch.inf))
    refused(folder, FILE, name, "not finite")


def test_a_tied_head_may_be_stored_again_and_old_buffers_are_ignored(folder, golden):
    def change(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)

    rewrite(folder, change)
    assert torch.equal(read(folder).embed.weight, read(golden.folder).embed.weight)


def test_a_head_that_is_not_used_may_be_stored(folder, golden):
    rewrite(folder, lambda t: t.update({"lm_head.weight": torch.ones(211, 48)}))
    config = json.loads((folder / "config.json").read_text())
    bare = config["architectures"][0].replace("ForCausalLM", "Model")
    (folder / "config.json").write_text(json.dumps(config | {"architectures": [bare]}))
    assert torch.equal(read(folder).embed.weight, read(golden.folder).embed.weight)


def test_pickles_are_never_opened(folder):
    (folder / FILE).rename(folder / "pytorch_model.bin")
    refused(folder, "pytorch_model.bin", "pickle")
    (folder / "pytorch_model.bin").unlink()
    refused(folder, "no model.safetensors")


def test_a_missing_folder_is_named(tmp_path):
    for source in (tmp_path / "nowhere", str(tmp_path / "nowhere"), "a/b/c", "../up"):
        with pytest.raises(CheckpointError, match="is not a folder"):
            locate(source)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is not a folder"):
        locate(tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        load(tmp_path)


def test_a_source_path_that_is_too_long_is_named():
    with pytest.raises(CheckpointError, match="a cannot be read: File name too long"):
        locate("a" * 300)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read anything")
def test_files_without_read_permission_are_not_reported_as_damaged(folder):
    (folder / "model.safetensors").chmod(0)
    with pytest.raises(CheckpointError, match="safetensors cannot be read: Permission denied"):
        load(folder)
    for mode in (0o600, 0):
        folder.chmod(mode)
        for path in (folder, folder / "inner"):
            with pytest.raises(CheckpointError, match="cannot be read: Permission denied"):
                locate(str(path))
    folder.chmod(0o700)


def test_the_embedded_models_name_finds_it_unless_a_folder_here_has_that_name(
    golden, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert locate("headway-tiny") == EMBEDDED
    assert display_name("headway-tiny") == display_name(None)
    own = shutil.copytree(golden.folder, tmp_path / "headway-tiny")
    assert locate("headway-tiny").resolve() == own
    assert display_name("headway-tiny") == "headway-tiny"


def test_a_hub_that_cannot_be_reached_is_said_to_be_so(monkeypatch):
    def snapshot(source, allow_patterns):
        raise FileNotFoundError("Got: ConnectError: Name or service not known\nAn error happened")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    with pytest.raises(CheckpointError, match="fetched from the hub: ConnectError: Name or serv"):
        locate("some/model")


def test_a_hub_id_that_cannot_be_fetched_is_named(monkeypatch, tmp_path):
    """Offline, as on a machine without a network, and with an empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"no-one/nothing.*cannot be fetched") as caught:
        locate("no-one/nothing")
    assert "\n" not in str(caught.value)


def test_a_hub_id_is_fetched_without_pickles_or_python_code(monkeypatch, golden):
    asked = {}

    def snapshot(source, allow_patterns):
        asked[source] = allow_patterns
        return str(golden.folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert locate("some/model") == golden.folder
    assert not any("bin" in pattern or "py" in pattern for pattern in asked["some/model"])


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"dtype": "int8"}, "int8"), ({"device": "abacus"}, "abacus"), ({"device": "cuda:0"}, "cuda")],
)
def test_an_unsupported_dtype_or_device_is_refused(golden, settings, named, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SettingError, match=named):
        load(golden.folder, **settings)


def test_weights_larger_than_the_memory_are_refused_before_they_are_read(golden, monkeypatch):
    monkeypatch.setattr("headway.executor.torch.load.free_memory", lambda device: 64 << 10)
    monkeypatch.delattr(Checkpoint, "read")
    named = r"the weights take .* KiB, and 64\.0 KiB are free \(cpu\)"
    with pytest.raises(MemoryPlanError, match=named):
        load(golden.folder, device="cpu")
    with pytest.raises(MemoryPlanError, match=named):
        load_random(read_config(golden.folder), device="cpu")


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_the_dtype_the_cpu_is_fast_at_by_default(
    folder, stored, quick, monkeypatch
):
    monkeypatch.setattr(
        "headway.executor.torch.config.model_config.has_fast_bfloat16", lambda: quick
    )
    config = json.loads((folder / "config.json").read_text())
    config.pop("dtype", None)
    (folder / "config.json").write_text(json.dumps(config | {"dtype": stored}))
    assert load(folder, device="cpu").dtype == ("bfloat16" if quick else "float32")
    assert load(folder, dtype="float32").dtype == "float32"
    assert load(folder, dtype="bfloat16").dtype == "bfloat16"
    assert read_config(folder).precision("", "cuda") == Precision("bfloat16")


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
def test_a_config_without_a_dtype_takes_the_dtype_of_the_weights(folder, stored):
    """The norms may have another dtype."""
    rewrite(folder, lambda t: t.update({n: x.to(stored) for n, x in t.items() if n != NORM}))
    config = json.loads((folder / "config.json").read_text())
    named = config.pop("dtype")
    (folder / "config.json").write_text(json.dumps(config))
    assert f"torch.{read_config(folder).dtype}" == str(stored)
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": named}))
    assert read_config(folder).dtype == named, "what it names counts"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / FILE).write_bytes(b"")
    assert read_config(folder).dtype == "float32"
    refused(folder, "damaged")
