"""KV memory: the bytes per token, and the batch that fits."""

from math import ceil
from statistics import fmean

from headway.commands.plan.estimate.checked_estimate import Estimate
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic


def kv_per_token(
    layers: int, heads: int, kv_heads: int, head_dim: int, itemsize: int
) -> dict[str, int]:
    """KV bytes per token by kind of attention: MHA, MQA and, if `kv_heads` is between, GQA."""
    each = 2 * layers * head_dim * itemsize
    kinds = {"MHA": each * heads, "MQA": each}
    if 1 < kv_heads < heads:
        kinds["GQA"] = each * kv_heads
    return dict(sorted(kinds.items(), key=lambda pair: -pair[1]))


def kv_estimate(kind: str, value: int, is_own: bool) -> Estimate:
    """The KV bytes per token as an estimate. is_own: the model has this kind of attention."""
    own = "" if is_own else ", if the model had that"
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
    """The number of blocks that hold these tokens."""
    return ceil(tokens / block_size)


def peak_batch(traffic: PlannedTraffic, num_blocks: int, block_size: int) -> Estimate:
    """The number of requests that fit if all reach their last token at once."""
    each = fmean(blocks(p + a - 1, block_size) for p, a in traffic.lengths)
    return Estimate(
        question="memory-limited batch, all requests at their last token",
        value=num_blocks // each,
        unit="requests",
        formula="blocks / blocks of (prompt + answer - 1); the last token's KV is never stored",
        assumes="all begin together and no two share a prefix, so none is ever preempted",
        source="future-peak admission, LightLLM (Past-Future, ASPLOS 2025)",
        holds="exact for requests of one length",
        outside=""
        if len(set(traffic.lengths)) == 1
        else "lengths differ, and short answers end early",
    )


def mean_batch(traffic: PlannedTraffic, num_blocks: int, block_size: int) -> Estimate:
    """The mean number of requests that fit, at mixed stages of their answers."""
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
        assumes="requests at all stages of their answers, a full memory, preemption as needed",
        source="Little's law, applied to blocks",
        holds="answers of 32 tokens or more, no longer than prompts; 100 requests or more",
        outside=outside,
    )
