"""KV memory: bytes of a token, and how many requests it holds."""

from math import ceil
from statistics import fmean

from headway.commands.plan.estimate.checked_estimate import Estimate
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic


def kv_per_token(
    layers: int, heads: int, kv_heads: int, head_dim: int, itemsize: int
) -> dict[str, int]:
    """Bytes, by kind of attention: as many KV heads as heads, as many as said, one."""
    each = 2 * layers * head_dim * itemsize
    kinds = {"MHA": each * heads, "MQA": each}
    if 1 < kv_heads < heads:
        kinds["GQA"] = each * kv_heads
    return dict(sorted(kinds.items(), key=lambda pair: -pair[1]))


def kv_estimate(kind: str, value: int, is_own: bool) -> Estimate:
    own = "" if is_own else ", if it had been made so"
    return Estimate(
        question=f"KV per token, {kind}{own}",
        value=value,
        unit="bytes",
        formula="2 (a key and a value) x layers x KV heads x head size x bytes of a number",
        assumes="all layers keep all tokens, sliding windows too, as the executor does",
        source="Shazeer 2019 (MQA), Ainslie et al. 2023 (GQA), Llama-2-7B in 16 bits: 512 KiB",
        holds="exact",
    )


def blocks(tokens: float, block_size: int) -> int:
    return ceil(tokens / block_size)


def peak_batch(traffic: PlannedTraffic, num_blocks: int, block_size: int) -> Estimate:
    """As many as fit when all are at their end."""
    each = fmean(blocks(p + a - 1, block_size) for p, a in traffic.lengths)
    return Estimate(
        question="memory-limited batch, all at their end at once",
        value=num_blocks // each,
        unit="requests",
        formula="blocks / blocks of (prompt + answer - 1); the last token's keys are never kept",
        assumes="all begin together and none shares a prefix: then nobody is ever preempted",
        source="future-peak admission, LightLLM (Past-Future, ASPLOS 2025)",
        holds="exact for requests of one length",
        outside="" if len(set(traffic.lengths)) == 1 else "lengths differ: short ones leave early",
    )


def mean_batch(traffic: PlannedTraffic, num_blocks: int, block_size: int) -> Estimate:
    """As many as fit on average over their lives."""
    spent = fmean(
        sum(blocks(p + step, block_size) for step in range(1, a)) for p, a in traffic.lengths
    )
    held = spent / traffic.decodes if traffic.decodes else float(blocks(traffic.prompt, block_size))
    outside = ""
    if num_blocks / held < 100:
        outside = "few requests: the memory is never quite full"
    elif not 32 <= traffic.answer <= traffic.prompt:
        outside = f"answers of {traffic.answer:.0f} tokens beside prompts of {traffic.prompt:.0f}"
    return Estimate(
        question="memory-limited batch, ages mixed",
        value=num_blocks / held,
        unit="requests",
        formula="blocks / blocks held on average over an answer's steps",
        assumes="requests of all ages, a full memory, preemption where it is short",
        source="Little's law of blocks",
        holds="answers of 32 tokens or more, no longer than prompts; 100 requests or more",
        outside=outside,
    )
