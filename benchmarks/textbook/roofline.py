"""Which of prefill and decode is bound by memory, and from which batch size decode is not."""

from benchmarks.textbook.memory import MODELS, per_token
from benchmarks.textbook.part import ARITHMETIC, Part, Table

# dense 16-bit FLOP/s and bytes/s, from the makers' data sheets
DEVICES = {"A100 80 GB": (312e12, 2.039e12), "H100 SXM": (989e12, 3.35e12)}
CONTEXTS = (128, 512, 2048, 8192)


def knee(device: str, model: str, context: int) -> float:
    """Batch from which a decode step computes longer than it reads; infinite if it never does.

    reading:   (2 P + B x context x kv) / bandwidth        P parameters of two bytes
    computing: B x (2 P + 4 x context x layers x heads x head) / flops
    """
    flops, bandwidth = DEVICES[device]
    layers, heads, kv_heads, head, parameters = MODELS[model]
    attention = 4 * context * layers * heads * head
    computing = (2 * parameters + attention) / flops
    reading = context * per_token(layers, kv_heads, head) / bandwidth
    if computing <= reading:
        return float("inf")
    return (2 * parameters / bandwidth) / (computing - reading)


def roofline() -> Part:
    figures, rows = dict[str, float](), list[list[str]]()
    for device, (flops, bandwidth) in DEVICES.items():
        name = device.split()[0].lower()
        figures[f"{name}_ridge"] = flops / bandwidth
        for model in ("Llama-2-7B", "Llama-3.1-8B"):
            layers, heads, kv_heads, head, parameters = MODELS[model]
            cells = [f"{flops / bandwidth:.0f}"]
            for context in CONTEXTS:
                found = knee(device, model, context)
                cells.append("never" if found == float("inf") else f"{found:,.0f}")
            rows.append([f"{model}, {device}", *cells])
            key = f"{name}_{model.lower().replace('-', '_').replace('.', '_')}"
            margin = per_token(layers, kv_heads, head) / bandwidth
            margin -= 4 * layers * heads * head / flops
            figures[f"{key}_last_context"] = 2 * parameters / flops / margin
    figures["seventy_gflop"] = 2 * MODELS["Llama-2-70B"][4] / 1e9
    head_row = ["batch from which decode computes more than it reads", "weights alone"]
    head_row += [f"context {context:,}" for context in CONTEXTS]
    return Part(ARITHMETIC, [Table(head_row, rows), phases(figures)], figures)


def phases(figures: dict[str, float]) -> Table:
    """FLOP per byte of weights and KV read, 16 bits, Llama-3.1-8B."""
    layers, heads, kv_heads, head, parameters = MODELS["Llama-3.1-8B"]
    kv, rows = per_token(layers, kv_heads, head), list[list[str]]()
    for words, key, sequences, past, tokens in (
        ("prefill of 2,048 tokens", "prefill_2048", 1, 0, 2048),
        ("prefill of 128 tokens", "prefill_128", 1, 0, 128),
        ("decode, batch 1", "decode_1", 1, 2048, 1),
        ("decode, batch 32", "decode_32", 32, 2048, 1),
        ("decode, batch 256", "decode_256", 256, 2048, 1),
    ):
        pairs = tokens * past + tokens * (tokens + 1) // 2
        work = sequences * (2 * parameters * tokens + 4 * layers * heads * head * pairs)
        moved = 2 * parameters + sequences * (past + tokens) * kv
        figures[f"{key}_intensity"] = work / moved
        ridges = [flops / bandwidth for flops, bandwidth in DEVICES.values()]
        bound = ["computing" if work / moved > ridge else "memory" for ridge in ridges]
        rows.append([words, f"{work / moved:,.1f}", *bound])
    head_row = ["Llama-3.1-8B, 2,048 tokens of context", "FLOP a byte"]
    return Table([*head_row, *(f"{name} waits for" for name in DEVICES)], rows, "phases")
