"""How many sequences fit: formulas that are off by a factor of twenty or of a hundred."""

from math import floor

from benchmarks.textbook.memory import BLOCK, MODELS, batch, per_token
from benchmarks.textbook.part import ARITHMETIC, Part, Table
from headway.core.kv.block_table import reserve
from headway.core.kv.blocks import BlockPool
from headway.core.request import Request
from headway.core.sequences.sequence import Sequence

QUOTED_SAFE, QUOTED_PRINTED, QUOTED_FEW, QUOTED_KV = (120, 160), 8_535, 5, 40_000
GB = 1e9
# Inputs under which 81 is right: a 7B model in 16 bits, 90 % of a 40 GB device.
DEVICE, SHARE, WEIGHTS, TOKENS = 40 * GB, 0.9, 14 * GB, 512
LONG = 4_096  # tokens, for the 8B model on 80 GB


def pooled(memory: float, kv: int, tokens: int) -> int:
    """Sequences of so many tokens that the real block pool holds in this memory, in bytes."""
    pool, count = BlockPool(int(memory // (kv * BLOCK)), BLOCK), 0
    while True:
        own = tuple(range(count * tokens, count * tokens + tokens - 1))
        sequence = Sequence(count, Request(f"r{count}", own, 1, 0), list(own))
        if not reserve(pool, sequence, whole=True):
            return count
        count += 1


def fits() -> Part:
    layers, _, kv_heads, head, _ = MODELS["Llama-2-7B"]
    kv, room = per_token(layers, kv_heads, head), DEVICE * SHARE - WEIGHTS
    right = floor(room / (kv * TOKENS))
    assert right == pooled(room, kv, TOKENS), "the block pool holds as many"
    figures: dict[str, float] = {"right": right, "kv_kib": kv / 1024}
    rows = [["sequences of 512 tokens beside a 7B model, 36 GB in all", f"{right}", "-"]]
    for key, count in (
        ("safe_least", QUOTED_SAFE[0]),
        ("safe_most", QUOTED_SAFE[1]),
        ("printed", QUOTED_PRINTED),
    ):
        need = count * kv * TOKENS
        figures[f"{key}_gb"] = need / GB
        rows.append(
            [f"{count:,} of the first", f"{need / GB:,.1f} GB of KV", f"{room / GB:.0f} GB"]
        )
    parameters, kv_8b = MODELS["Llama-3.1-8B"][4], per_token(32, 8, 128)
    many = batch(80, parameters, kv_8b, LONG)
    room_8b = 80 * GB * SHARE - 2 * parameters
    assert many == pooled(room_8b, kv_8b, LONG), "the block pool holds as many"
    figures |= {"many": many, "few_gb": room_8b / QUOTED_FEW / GB}
    figures["few_tokens"] = room_8b / QUOTED_FEW / kv_8b
    figures["few_share"] = QUOTED_FEW / many * 100
    figures["kv_ratio"] = kv / QUOTED_KV
    figures["kv_batch"] = floor(room / (QUOTED_KV * TOKENS))
    rows.append(["sequences of 4,096 tokens beside an 8B model, 72 GB in all", f"{many}", "-"])
    head_row = ["what is to fit", "fits, or needs", "there are"]
    return Part(ARITHMETIC, [Table(head_row, rows)], figures)
