"""The memory plan: hand-computed numbers, binding limits, cgroup limits."""

from dataclasses import replace

import pytest

from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Start, Static
from headway.core.policies.policies import Policies, usual
from headway.errors import MemoryPlanError, SettingError
from headway.executor.torch.config.model_config import parse_config
from headway.executor.torch.memory.free_memory import free_on_host
from headway.executor.torch.memory.memory_plan import (
    SCORE_ELEMENTS,
    Limits,
    plan_memory,
    step_bytes,
)

GIB = 1 << 30
LLAMA2_7B = parse_config(
    {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "torch_dtype": "float16",
    },
    {},
)


def plan_of(limits, free=64 * GIB, weights=0, config=LLAMA2_7B):
    return plan_memory(config, limits, 2, weights, free, gather_budget=1 << 20)


def test_llama_2_holds_half_a_mebibyte_per_token():
    plan = plan_of(Limits(block_size=16), weights=13 * GIB)
    assert plan.per_block == 16 * 512 * 1024
    assert plan.num_blocks == plan.fit < plan.usable and plan.context == 4096
    assert plan.kv + plan.activations <= 0.8 * 64 * GIB < plan.kv + plan.activations + 9 * 2**20
    assert str(plan) == (
        f"memory: 13.0 GiB weights, 64.0 GiB free, {plan.activations / 2**20:.1f} MiB for "
        f"activations, KV {plan.kv / 2**30:.1f} GiB in {plan.fit} blocks of 16 tokens "
        f"(bound by memory: {plan.fit} fit, 16384 usable)"
    )


def test_the_plan_takes_no_more_than_the_engine_can_use():
    limits = Limits(sequences=3, context=100, block_size=16)
    plan = plan_of(limits)
    assert plan.num_blocks == plan.usable == 3 * 7 and plan.context == 100
    assert "bound by limits" in str(plan)


def test_larger_steps_leave_fewer_blocks():
    fits = [plan_of(Limits(step_tokens=n), 32 * GIB).fit for n in (512, 65536)]
    assert fits[0] > fits[1]
    assert step_bytes(LLAMA2_7B, Limits(step_tokens=512), 2) < GIB


def test_memory_for_gathered_keys_and_values_is_planned_for():
    """The gather budget of decode rows, or one row of the whole context if that is more."""
    whole, short = Limits(), Limits(context=16)
    assert plan_of(whole).activations == step_bytes(LLAMA2_7B, whole, 2) + 4096 * 16384
    assert plan_of(short).activations == step_bytes(LLAMA2_7B, short, 2) + (1 << 20)


def test_capped_scores_are_planned_for():
    """Gemma 2's capped scores are materialised, a bounded number at once."""
    capped = replace(LLAMA2_7B, scales=replace(LLAMA2_7B.scales, scores_cap=50.0))
    more = step_bytes(capped, Limits(), 2) - step_bytes(LLAMA2_7B, Limits(), 2)
    assert more == 12 * SCORE_ELEMENTS == 48 << 20


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(MemoryPlanError, match=r"do not fit.*lower") as caught:
        plan_of(Limits(), 100 << 20)
    assert "\n" not in str(caught.value)
    with pytest.raises(MemoryPlanError, match="5000 KV blocks"):
        plan_of(Limits(num_blocks=5000), 16 * GIB)
    assert plan_of(Limits(num_blocks=50), 16 * GIB).num_blocks == 50


@pytest.mark.parametrize(
    "wrong", [{"sequences": 0}, {"step_tokens": -1}, {"block_size": 0}, {"num_blocks": -1}]
)
def test_zero_or_negative_limits_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(SettingError, match=name):
        Limits(**wrong)


def test_a_context_longer_than_the_models_is_refused():
    with pytest.raises(SettingError, match="4097 is longer than the 4096"):
        plan_of(Limits(context=4097))
    assert plan_of(Limits(), config=replace(LLAMA2_7B, context=9000)).context == 9000


def system(tmp_path, group_line, **files):
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    (proc / "self" / "cgroup").write_text(group_line)
    for name, text in files.items():
        path = groups / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return free_on_host(proc, groups)


def test_without_a_cgroup_limit_the_systems_free_memory_counts(tmp_path):
    unlimited = {"a__memory.max": "max", "a__memory.current": "1", "a__memory.stat": "x 1"}
    assert system(tmp_path, "0::/a\n", **unlimited) == 8000 << 10


def test_a_cgroup_of_version_2_and_its_parents_limit_the_memory(tmp_path):
    files = {
        "a__b__memory.max": "3000000",
        "a__b__memory.current": "500000",
        "a__b__memory.stat": "anon 1\ninactive_file 40000\n",
        "a__memory.max": "2000000",
        "a__memory.current": "500000",
        "a__memory.stat": "anon 1\n",
    }
    assert system(tmp_path, "0::/a/b\n", **files) == 1_500_000


def test_a_cgroup_of_version_1_limits_the_memory(tmp_path):
    files = {
        "memory__a__memory.limit_in_bytes": "1000000",
        "memory__a__memory.usage_in_bytes": "900000",
        "memory__a__memory.stat": "cache 9\ninactive_file 50000\n",
    }
    assert system(tmp_path, "5:cpu:/\n4:memory:/a\n", **files) == 150_000


def test_without_figures_of_free_memory_half_of_all_memory_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 100, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert free_on_host(tmp_path) == 100 * 4096 // 2
    monkeypatch.delattr("os.sysconf")
    with pytest.raises(MemoryPlanError, match="num_blocks"):
        free_on_host(tmp_path)


def test_the_plan_follows_the_policy_that_will_run():
    for join, chunk, cells in (
        (Continuous(100), Fixed(64), 512),
        (Continuous(100), Whole(), 511 + 4096),
        (Static(100), Fixed(64), 100 * 64),
        (Static(100), Whole(), 100 * 4096),
    ):
        policies = Policies(join, chunk=chunk)
        limits = Limits.of(policies, 3, 0, 16)
        plan = plan_of(limits, 1 << 50)
        assert plan.usable == 100 * 4096 // 16, "the policy's own size, not the slots"
        same = step_bytes(LLAMA2_7B, Limits(100, cells), 2)
        assert step_bytes(LLAMA2_7B, limits, 2) == same
    assert Limits.of(Policies(Own()), 3, 0, 16).sequences == 3
    assert Limits(8).cells(4096) == usual(8).step_tokens


def test_histories_of_penalties_are_planned_for():
    """A bit and a count per vocabulary token for each running sequence."""
    more = [step_bytes(LLAMA2_7B, Limits(n, 512), 2) for n in (10, 11)]
    assert more[1] - more[0] >= 32_000 * (5 + 24)


class Own:
    def start(self, view):
        return Start()
