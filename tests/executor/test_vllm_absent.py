"""The executor vllm where vLLM is not installed, and the checks made before vLLM is loaded."""

import builtins
import os
import sys
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from headway import LLM
from headway.core.policies.join import Dynamic
from headway.core.policies.policies import Policies
from headway.errors import CheckpointError, MemoryPlanError, SettingError
from headway.executor.torch.loading.weight_bytes import stored_bytes
from headway.executor.torch.memory.memory_plan import Limits
from headway.executor.vllm import load
from headway.executor.vllm.adapters import Adapter, check_fits, read_adapters
from headway.executor.vllm.engine_args import check_options, engine_args, prepare_environment
from headway.executor.vllm.load import VllmPlan
from headway.executor.vllm.worker import mixed
from headway.models import EMBEDDED
from headway.server.config.config import ServerConfig
from headway.server.config.engine_options import engine_options


@pytest.fixture
def absent(monkeypatch):
    """No module of vLLM can be imported, whether it is installed or not."""
    found = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] == "vllm":
            raise ModuleNotFoundError("No module named 'vllm'", name="vllm")
        return found(name, *rest, **more)

    for name in [each for each in sys.modules if each.split(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)


def test_without_vllm_the_error_says_where_to_get_it(absent):
    with pytest.raises(SettingError, match=r"needs vLLM.*headway\[vllm\].* make vllm"):
        LLM(executor="vllm")


def test_a_module_that_vllm_itself_lacks_is_named(monkeypatch):
    found = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] == "vllm":
            raise ModuleNotFoundError("No module named 'msgspec'", name="msgspec")
        return found(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingError, match="vLLM cannot be imported: No module named 'msgspec'"):
        LLM(executor="vllm")


def test_a_value_that_vllm_refuses_is_a_setting_error(monkeypatch):
    @dataclass
    class EngineArgs:
        model: str
        compilation_config: dict

        def __init__(self, compilation_config, **rest):
            raise ValueError("1 validation error\nnonsense\n  Unexpected argument [type=x]\n  url")

    module = ModuleType("vllm.engine.arg_utils")
    module.EngineArgs = EngineArgs
    for name in ("vllm", "vllm.engine"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", module)
    with pytest.raises(SettingError, match="refuses its options: nonsense: Unexpected"):
        engine_args(Path(), Limits(1, 0, 8, 32), "", {"compilation_config": {"nonsense": 1}})


def test_workers_are_processes_of_their_own_unless_an_option_says_otherwise(monkeypatch):
    """vLLM's default for one rank on a GPU is a worker in this process: it would block `submit`."""
    names = ("model", "distributed_executor_backend")
    module = ModuleType("vllm.engine.arg_utils")
    module.EngineArgs = make_dataclass("EngineArgs", [(name, str, "") for name in names])
    module.EngineArgs.__init__ = lambda self, **given: self.__dict__.update(given)
    for name in ("vllm", "vllm.engine"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", module)
    asked = [{}, {"distributed_executor_backend": "ray"}]
    made = [engine_args(Path(), Limits(1, 0, 8, 32), "", options) for options in asked]
    assert [each.distributed_executor_backend for each in made] == ["mp", "ray"]


def test_an_unknown_executor_is_refused_and_vllm_options_need_vllm():
    with pytest.raises(SettingError, match="there is no executor 'vlm'; did you mean vllm"):
        LLM(executor="vlm")
    with pytest.raises(SettingError, match=r"options of vLLM \(quantization\) need the executor"):
        LLM(vllm={"quantization": "awq"})


def test_groups_are_refused_before_vllm_is_imported(absent):
    with pytest.raises(SettingError, match=r"vLLM computes no padding.* groups of Dynamic"):
        LLM(executor="vllm", policies=Policies(Dynamic(4, 1)))


@pytest.mark.parametrize(
    "option, cause",
    [
        ("block_size", "vLLM's block_size follows from block_size: set that"),
        ("max_num_seqs", "follows from slots"),
        ("speculative_config", "vLLM's speculative_config cannot be set"),
        ("enable_lora", "vLLM's enable_lora follows from adapters: set that"),
        ("enable_prefix_caching", "cannot be set: headway decides it, or lacks it"),
        ("revision", "vLLM's revision cannot be set"),
        ("tokenizer", "vLLM's tokenizer cannot be set"),
        ("kv_offloading_size", "vLLM's kv_offloading_size cannot be set"),
        ("kv_sharing_fast_prefill", "vLLM's kv_sharing_fast_prefill cannot be set"),
        ("return_sampling_mask", "vLLM's return_sampling_mask cannot be set"),
        ("shutdown_timeout", "vLLM's shutdown_timeout cannot be set"),
        ("long_prefill_token_threshold", "cannot be set: headway decides it, or lacks it"),
        ("quantisation", "vLLM has no option 'quantisation'; did you mean quantization"),
        ("_private", "vLLM has no option '_private'"),
    ],
)
def test_vllm_options_that_are_unknown_or_that_headway_sets_are_refused(option, cause):
    check_options({"quantization": "awq"}, ["quantization"])
    with pytest.raises(SettingError, match=cause):
        check_options({"quantization": "awq", option: 1}, ["quantization", "_private"])


def test_vllm_environment_variables_are_kept_unless_headway_needs_another_value(monkeypatch):
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    monkeypatch.delenv("VLLM_NO_USAGE_STATS", raising=False)
    prepare_environment()
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG", "the user's own"
    assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"


@pytest.mark.parametrize("memory, ranks", [(0, 1), (0, 2), (30 << 20, 1), (1 << 40, 1)])
def test_the_kv_of_a_cpu_leaves_room_for_weights_that_are_not_loaded_yet(
    monkeypatch, memory, ranks
):
    weights = stored_bytes(EMBEDDED, 4)
    model = SimpleNamespace(
        get_num_layers=lambda parallel: 4,
        get_num_kv_heads=lambda parallel: 2,
        get_head_size=lambda: 64,
        dtype=torch.float32,
        max_model_len=2048,
        quantization=None,
    )
    config = SimpleNamespace(
        cache_config=SimpleNamespace(block_size=32, kv_cache_memory_bytes=None),
        device_config=SimpleNamespace(device_type="cpu"),
        model_config=model,
        parallel_config=SimpleNamespace(tensor_parallel_size=ranks),
    )
    free = weights + (20 << 20)
    monkeypatch.setattr(load, "free_on_host", lambda: free)
    load._limit_memory(config, Limits(64, 0, 2048, 32, memory=memory), EMBEDDED)
    left = min(free, memory or free) - weights
    assert config.cache_config.kv_cache_memory_bytes == int(0.8 * left) // ranks
    monkeypatch.setattr(load, "free_on_host", lambda: weights)
    config.cache_config.kv_cache_memory_bytes = None
    with pytest.raises(MemoryPlanError, match="the weights take"):
        load._limit_memory(config, Limits(64, 0, 2048, 32), EMBEDDED)


def test_seeds_of_different_positions_differ_in_their_lower_32_bits():
    """torch's CPU generator reads 32 bits of a seed."""
    seeds = {mixed(seed, at) % 2**32 for seed in (0, 1, 2**62) for at in range(500)}
    assert len(seeds) == 1_500
    assert all(0 <= mixed(2**63 - 1, at) < 2**63 for at in range(9))
    assert mixed(7, 3) == mixed(7, 3) != mixed(3, 7)


def test_adapters_are_refused_by_the_torch_executor_and_without_a_valid_config(tmp_path, absent):
    with pytest.raises(SettingError, match=r"headway's executor applies no LoRA adapters \(sql\)"):
        LLM(adapters={"sql": "folder"})
    with pytest.raises(CheckpointError, match=r"the adapter sql: .* has no adapter_config\.json"):
        read_adapters({"sql": str(tmp_path)})
    for plain in ("{}", '{"r": 0}', '{"r": true}', '{"r": 4, "rank_pattern": {"q": "8"}}'):
        (tmp_path / "adapter_config.json").write_text(plain)
        with pytest.raises(CheckpointError, match=r"the adapter sql: .* has no rank"):
            read_adapters({"sql": str(tmp_path)})
    (tmp_path / "adapter_config.json").write_text('{"r": 4, "rank_pattern": {"q": 8}}')
    assert read_adapters({"sql": str(tmp_path)}) == (Adapter("sql", 1, tmp_path, 8),)


def test_the_memory_summary_states_the_number_of_ranks():
    one = VllmPlan(1 << 20, 1 << 10, 32, 2_048, 512)
    assert one.summary.startswith("memory, as vLLM divides it: 1.0 MiB weights\nKV 2.0 MiB: 2048")
    assert "as vLLM divides it among 4 ranks: 1.0" in str(replace(one, ranks=4))


def test_a_server_refuses_groups_and_threads_for_vllm():
    config = ServerConfig(engine={"executor": "vllm", "vllm": {"enforce_eager": True}})
    assert engine_options(config)["block_size"] == 32
    assert engine_options(config)["vllm"] == {"enforce_eager": True}
    assert engine_options(ServerConfig())["block_size"] == 16
    with pytest.raises(ValueError, match="vLLM computes no padding"):
        ServerConfig(engine={"executor": "vllm", "strategy": "dynamic-lanes"})
    with pytest.raises(ValueError, match="threads are vLLM's own"):
        ServerConfig(engine={"executor": "vllm", "threads": 2})
    with pytest.raises(ValueError, match="need the executor vllm"):
        ServerConfig(engine={"vllm": {"enforce_eager": True}})


def test_an_adapter_whose_shapes_do_not_fit_the_model_is_refused(tmp_path):
    def stored(name, **shapes):
        (tmp_path / name).mkdir()
        tensors = {each.replace("__", "."): torch.zeros(shape) for each, shape in shapes.items()}
        save_file(tensors, tmp_path / name / "some.safetensors")
        return Adapter(name, 1, tmp_path / name, 2)

    stored("model", model__q__weight=(8, 6))
    peft = "base_model__model__model__"

    def adapter(name, module, inner, outer):
        parts = {f"{peft}{module}__lora_A__weight": inner, f"{peft}{module}__lora_B__weight": outer}
        return stored(name, **parts)

    fitting = adapter("fitting", "q", (2, 6), (8, 2)), adapter("elsewhere", "z", (2, 3), (3, 2))
    check_fits(fitting, tmp_path / "model")
    narrow = adapter("narrow", "q", (2, 3), (4, 2))
    words = r"the adapter narrow was made for another model: it changes model\.q as \[4, 3\], which"
    with pytest.raises(CheckpointError, match=words):
        check_fits([*fitting, narrow], tmp_path / "model")
    (tmp_path / "narrow" / "some.safetensors").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match=r"some\.safetensors is damaged or cut short"):
        check_fits([narrow], tmp_path / "model")
