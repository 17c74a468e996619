"""MemoryPlan: how many KV blocks fit into the free memory, before any is allocated."""

from dataclasses import dataclass

from headway.core.policies.chunk import Fixed
from headway.core.policies.policies import Policies, usual
from headway.core.sampling import MOST_LOGPROBS
from headway.errors import MemoryPlanError, SettingError
from headway.executor.torch.config.model_config import ModelConfig

USABLE_SHARE = 0.8  # of the free memory; the rest is for the system and the unforeseen
SCORE_ELEMENTS = 1 << 22  # scores that soft-capped attention (no fused kernel) holds at once
LOGIT_ELEMENTS = 1 << 22  # logits that prompt scoring computes at once
# Bytes per token of the vocabulary. SAMPLED: per sampling row, for logits in float32 (raw, changed,
# scaled, sorted), 64-bit indices, shares, sums and noise. HISTORY: per row, for what its penalties
# read. SCORED: per scored prompt position.
SAMPLED_BYTES, HISTORY_BYTES, SCORED_BYTES = 64, 5, 24

# Bytes of one layer's keys and values that decode rows gather at once, by kind of device. On a CPU
# this much stays in a core's own cache between gathering and reading, and rows sorted by length are
# padded only to a neighbour's length. Compared with gathering all rows at once, attention of 8 to
# 64 rows took 1/1.0 to 1/1.4 of the time with similar lengths, and 1/1.5 to 1/2.8 with mixed
# lengths. Budgets of 4 MiB, 2 MiB, 512 KiB, 256 KiB and 128 KiB were slower.
GATHER_BUDGET = {"cpu": 1 << 20}
GATHER_BUDGET_ELSEWHERE = 256 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an engine, from which its memory is planned."""

    sequences: int = 64  # running at once (slots)
    step_tokens: int = 0  # the most tokens of a step, padding included; 0: as the policies say
    context: int = 0  # the most tokens of a sequence; 0: the model's
    block_size: int = 16  # tokens
    num_blocks: int = 0  # 0: as many as fit and can be used
    policies: Policies | None = None  # None: the usual ones for this many sequences
    memory: int = 0  # bytes that the model may take, weights included; 0: all that are free

    def __post_init__(self) -> None:
        for name in ("sequences", "block_size"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("context", "num_blocks", "step_tokens"):
            if getattr(self, name) < 0:
                raise SettingError(f"{name} must be 0 (open) or more, not {getattr(self, name)}")

    @classmethod
    def of(
        cls, policies: Policies, slots: int, context: int, block_size: int, memory: int = 0
    ) -> "Limits":
        """The limits of an engine with these policies. slots: used if the policies set none."""
        sequences = policies.slots or slots
        return cls(sequences, 0, context, block_size, policies=policies, memory=memory)

    def left(self, weights: int, free: int) -> int:
        """How many of the `free` bytes the model may use besides its weights. Raises
        MemoryPlanError if the weights leave it none."""
        if not self.memory:
            return free
        if weights >= self.memory:
            have = human_bytes(self.memory)
            raise MemoryPlanError(f"the weights take {human_bytes(weights)}, and it has {have}")
        return min(free, self.memory - weights)

    def cells(self, context: int) -> int:
        """Tokens that the largest step computes if sequences may hold `context` tokens."""
        return self.step_tokens or (self.policies or usual(self.sequences)).cells(context)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the memory goes. Sizes in bytes. str() is one line for people."""

    weights: int  # already allocated
    free: int  # in addition to the weights
    activations: int  # of the largest step
    per_block: int  # KV, all layers
    block_size: int
    num_blocks: int  # blocks for sequences; the scratch block is extra
    fit: int  # blocks that would fit
    usable: int  # most blocks that the limits can use
    context: int  # tokens that a sequence may hold

    @property
    def kv(self) -> int:
        return (self.num_blocks + 1) * self.per_block

    @property
    def summary(self) -> str:
        """The plan for people, in lines of less than 80 characters."""
        weights, activations = human_bytes(self.weights), human_bytes(self.activations)
        where = f"memory: {weights} weights, {activations} for activations"
        kv = f"KV {human_bytes(self.kv)}: {self.num_blocks} blocks of {self.block_size} tokens,"
        if self.usable <= self.fit:
            why = f"all that the slots can use; the memory has room for {self.fit}"
        else:
            why = f"all that the memory has room for; the slots could use {self.usable}"
        return f"{where}, {human_bytes(self.free)} free\n{kv}\n  {why}"

    def __str__(self) -> str:
        bound = "limits" if self.usable <= self.fit else "memory"
        return (
            f"memory: {human_bytes(self.weights)} weights, {human_bytes(self.free)} free, "
            f"{human_bytes(self.activations)} for activations, KV {human_bytes(self.kv)} in "
            f"{self.num_blocks} blocks of {self.block_size} tokens (bound by {bound}: "
            f"{self.fit} fit, {self.usable} usable)"
        )


def check_weights(weights: int, free: int, device: str) -> None:
    """Raise MemoryPlanError if this many bytes of weights do not fit into a device's free bytes."""
    if weights >= free:
        raise MemoryPlanError(
            f"the weights take {human_bytes(weights)}, and {human_bytes(free)} are free ({device})"
        )


def plan_memory(
    config: ModelConfig, limits: Limits, itemsize: int, weights: int, free: int, gather_budget: int
) -> MemoryPlan:
    """Divide the memory. Pure; all sizes in bytes.

    itemsize: of one number in the compute dtype. weights: what the weights have taken. free: what
    is left besides them; limits.memory caps what is used of it. gather_budget: KV that decode rows
    of one layer gather at once.

    Raises MemoryPlanError if no block fits, or fewer than the limits ask for; SettingError if the
    limits' context is longer than the model's.
    """
    if limits.context > config.context:
        raise SettingError(
            f"context {limits.context} is longer than the {config.context} the model was made for"
        )
    free = limits.left(weights, free)
    context = limits.context or config.context
    per_block = config.kv_elements * itemsize * limits.block_size
    room = int(free * USABLE_SHARE)
    usable = limits.sequences * -(-context // limits.block_size)
    # A single row is gathered whole, however long it is.
    row = -(-context // limits.block_size) * per_block // config.layers
    if config.scales.scores_cap:  # plus a copy for every query head
        row += row * config.heads // config.kv_heads
    activations = step_bytes(config, limits, itemsize) + max(gather_budget, row)
    fit = max(0, (room - activations) // per_block - 1)  # minus the scratch block
    wanted = limits.num_blocks or min(fit, usable)
    plan = MemoryPlan(
        weights=weights,
        free=free,
        activations=activations,
        per_block=per_block,
        block_size=limits.block_size,
        num_blocks=wanted,
        fit=fit,
        usable=usable,
        context=context,
    )
    if not 1 <= wanted <= fit:
        policies = limits.policies
        is_split = policies is None or isinstance(policies.chunk, Fixed)
        lower = "slots, context, step_tokens or num_blocks"
        lower += "" if is_split else ", or split prompts into chunks"
        raise MemoryPlanError(
            f"{wanted or 1} KV blocks of {human_bytes(per_block)} do not fit: "
            f"{human_bytes(free)} are free, {USABLE_SHARE:.0%} of it may be used, "
            f"{human_bytes(activations)} go to activations; lower {lower}"
        )
    return plan


def step_bytes(config: ModelConfig, limits: Limits, itemsize: int) -> int:
    """Bytes that the largest step holds at once besides the KV memory, including the sampling state
    of the sequences. An upper bound: tests/executor/torch/memory/test_planned.py checks it."""
    cells = limits.cells(limits.context or config.context)
    cells += cells // 16 + 4  # a CPU rounds up the row counts of its products
    scores = (
        3 * 4 * SCORE_ELEMENTS if config.scales.scores_cap else 0
    )  # float32; the cap needs three copies
    return (
        scores
        + cells * _cell_bytes(config, limits, itemsize)
        + limits.sequences * config.vocab * (SAMPLED_BYTES + HISTORY_BYTES)
        + max(config.vocab, min(LOGIT_ELEMENTS, cells * config.vocab)) * SCORED_BYTES
    )


def _cell_bytes(config: ModelConfig, limits: Limits, itemsize: int) -> int:
    """Bytes of one token, padding or held slot at a layer's peak. The sum of:

    - the residual stream, what is added to it, and a norm in float32;
    - the largest of attention (queries, keys, values, their rotated copies, the result), the MLP
      (gate, up, activation, product) and the results of all of a token's experts at once;
    - the masks over the context: one per window, and one more while a mask is made. A row needs a
      mask if it started in an earlier step or has a window;
    - indices, and the likeliest tokens of a scored prompt.
    """
    turned = (config.heads + 2 * config.kv_heads) * config.head_dim
    inside = max(5 * turned, 4 * config.intermediate)
    if config.experts is not None:
        inside = max(inside, config.experts.chosen * (3 * config.intermediate + config.hidden))
    wide = itemsize * (6 * config.hidden + inside) + 3 * 4 * max(config.hidden, turned)
    windows = len({layer.window for layer in config.layer_attention})
    ropes = len({layer.rope for layer in config.layer_attention})
    seen = (windows * itemsize + 4) * (limits.context or config.context)
    return wide + seen + ropes * config.head_dim * itemsize + 8 * 8 + 12 * (MOST_LOGPROBS + 1)


def gather_budget(kind: str) -> int:
    """Bytes of one layer's keys and values that decode rows gather at once on a kind of device."""
    return GATHER_BUDGET.get(kind, GATHER_BUDGET_ELSEWHERE)


def human_bytes(count: int) -> str:
    """A number of bytes for people, such as 1.5 GiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"
