"""No step takes more memory than planned, as counted by torch's profiler.

The shapes, policies and requests each use most of some resource: whole prompts that overrun the
step, prompts after a cached prefix, padding and held slots, a large vocabulary with penalties,
scoring.
"""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from headway.core.commands import Add, Close
from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Dynamic, LengthClasses, Static
from headway.core.policies.mix import PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.executor.loaded import settings_of
from headway.executor.torch.config.model_config import parse_config
from headway.executor.torch.load import load_random
from headway.executor.torch.memory.memory_plan import Limits
from tests.traces import ask

CONTEXT = 256
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
    "max_position_embeddings": CONTEXT,
}
GEMMA2 = LLAMA | {
    "architectures": ["Gemma2ForCausalLM"],
    "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 16,
    "sliding_window": 24,
    "query_pre_attn_scalar": 16,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "layer_types": ["sliding_attention", "full_attention"],
}
QWEN3 = LLAMA | {"architectures": ["Qwen3ForCausalLM"], "head_dim": 64}
EXPERTS = QWEN3 | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 800,
}
WIDE = LLAMA | {"intermediate_size": 1600}
WORDY = LLAMA | {"vocab_size": 30_000}
PENALTIES = Sampling(
    temperature=1.0,
    top_p=0.99999,
    presence_penalty=0.5,
    repetition_penalty=1.1,
    stop_tokens=frozenset({5}),
    min_tokens=2,
    logprobs=20,
)
SCORED = Sampling(prompt_logprobs=20)
WHOLE = Policies(Continuous(6), step_tokens=6)
CHUNKED = Policies(Continuous(6), chunk=Fixed(48), step_tokens=54)
GROUP = Policies(Static(6), mix=PrefillFirst(), step_tokens=6 * CONTEXT)
BUCKETS = Policies(Static(6, (32, 250)), chunk=Fixed(40), mix=PrefillFirst(), step_tokens=64)
DYNAMIC = Policies(Dynamic(5, 0), mix=PrefillFirst(), step_tokens=6)
CLASSES = Policies(LengthClasses(5, (20,), 0), step_tokens=6)
BOUNDED = Policies(LengthClasses(5, (20, 254), 0, pad_to_bound=True), step_tokens=6)


def asks(kind):
    """Each request generates two tokens or more, so that rows decode and slots are held."""
    lengths = [250, 3, 3, 3, 3, 3] if kind == "one long" else [250 - 7 * i for i in range(6)]
    shared = kind == "cached"
    made = [(ask("first", (9,) * 40, 1))] if shared else []
    return made + [
        ask(f"r{i}", (9,) * (n - 1) + (i,) if shared else (i,) * n, 2 + i % 3)
        for i, n in enumerate(lengths)
    ]


def taken(config, policies, requests, sampling, dtype):
    """The peak of memory while the requests were served, and the plan."""
    limits = Limits.of(policies, 1, 0, 16)
    loaded = load_random(config, limits, dtype, "cpu")
    scheduler = Scheduler(settings_of(loaded, (Lane(),), policies))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        for each in requests:
            object.__setattr__(each, "sampling", sampling)
        first, others = requests[:1], requests[1:]
        for some in (first, others) if requests[0].id == "first" else (requests,):
            scheduler.apply([Add(each) for each in some], 0)
            if some[-1] is requests[-1]:
                scheduler.apply([Close()], 0)
            while (batch := scheduler.schedule(0)).rows:
                output = loaded.executor.collect(loaded.executor.submit(batch))
                assert not output.errors
                scheduler.commit(batch, output, 0)
    assert scheduler.finished
    held = most = 0
    events = [each for each in seen.profiler.kineto_results.events() if each.name() == "[memory]"]
    for each in sorted(events, key=lambda each: each.start_ns()):
        held += each.nbytes()
        most = max(most, held)
    return most, loaded.plan.activations


@pytest.mark.parametrize(
    "shape, policies, kind, sampling, dtype",
    [
        (LLAMA, WHOLE, "cached", Sampling(), "float32"),
        (WIDE, WHOLE, "one long", Sampling(), "float32"),
        (WIDE, GROUP, "all long", Sampling(), "float32"),
        (WIDE, DYNAMIC, "one long", Sampling(), "bfloat16"),
        (WIDE, GROUP, "all long", Sampling(), "bfloat16+int8"),
        (WIDE, CLASSES, "all long", Sampling(), "float32"),
        (WIDE, BOUNDED, "all long", Sampling(), "float32"),
        (QWEN3, GROUP, "all long", Sampling(), "float32"),
        (EXPERTS, GROUP, "all long", Sampling(), "float32"),
        (GEMMA2, WHOLE, "all long", SCORED, "float32"),
        (GEMMA2, GROUP, "one long", Sampling(), "float32"),
        (GEMMA2, BUCKETS, "all long", PENALTIES, "bfloat16"),
        (WORDY, CHUNKED, "one long", PENALTIES, "float32"),
        (WORDY, CHUNKED, "all long", SCORED, "float32"),
    ],
)
def test_no_step_takes_more_memory_than_planned(shape, policies, kind, sampling, dtype):
    torch.manual_seed(0)
    most, planned = taken(parse_config(shape, {}), policies, asks(kind), sampling, dtype)
    assert planned / 200 < most <= planned, "the plan is not far too high either"
