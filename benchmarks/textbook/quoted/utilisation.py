"""How busy a device is by batch size, and what one more sequence costs."""

from benchmarks.textbook.memory import MODELS, per_token
from benchmarks.textbook.part import ARITHMETIC, SIMULATED, Part, Table, percent
from benchmarks.textbook.roofline import DEVICES
from benchmarks.textbook.runs import COST
from headway.core.cost.features import NONE, row_features

MODEL, CONTEXT = "Llama-3.1-8B", 512
BATCHES = (1, 8, 32, 64, 128, 256, 1024)
SHARES = (3, 5, 70, 85, 90)  # percent of the FLOP/s that are quoted
QUOTED_STEP, QUOTED_MORE = 50.0, (2.0, 3.0)  # ms
CONTEXTS = (512, 2048, 8192)


def computing_share(device: str, batch: int, context: int) -> float:
    """Share of the device's FLOP/s that a decode step can reach, 0 to 1.

    It takes as long as the longer of reading weights and keys, and computing.
    """
    flops, bandwidth = DEVICES[device]
    layers, heads, kv_heads, head, parameters = MODELS[MODEL]
    work = batch * (2 * parameters + 4 * context * layers * heads * head)
    reads = 2 * parameters + batch * context * per_token(layers, kv_heads, head)
    return (work / flops) / max(work / flops, reads / bandwidth)


def utilisation() -> Part:
    """The share of the FLOP/s that decoding can use at most: a roofline."""
    figures, rows = dict[str, float](), list[list[str]]()
    for batch in BATCHES:
        cells = [f"{batch:,}"]
        for device in DEVICES:
            for context in (0, CONTEXT):
                share = computing_share(device, batch, context)
                figures[f"{device.split()[0].lower()}_{batch}_at_{context}"] = share * 100
                cells.append(percent(share))
        rows.append(cells)
    for device, (flops, bandwidth) in DEVICES.items():
        for share in SHARES:  # of weights alone, where a batch of B computes B FLOP a byte
            key = f"{device.split()[0].lower()}_batch_for_{share}"
            figures[key] = share / 100 * flops / bandwidth
    head = ["sequences that decode"]
    for device in DEVICES:
        head += [f"{device}, weights alone", f"{device}, context {CONTEXT}"]
    return Part(ARITHMETIC, [Table(head, rows)], figures)


def decoding(batch: int, context: int) -> int:
    """Nanoseconds of a step in which `batch` sequences decode, each with `context` tokens."""
    row, step = row_features(context, 1, logits=1), NONE
    for _ in range(batch):
        step += row
    return COST.predict(step)


def marginal() -> Part:
    """What the cost model of an 8B model on an H100 says of one more sequence."""
    figures, rows = dict[str, float](), list[list[str]]()
    for context in CONTEXTS:
        alone, both = decoding(1, context), decoding(2, context)
        figures |= {f"alone_{context}_ms": alone / 1e6, f"more_{context}_us": (both - alone) / 1e3}
        figures[f"share_{context}"] = (both - alone) / alone * 100
        cells = [f"{alone / 1e6:.2f}", f"{(both - alone) / 1e6:.3f}", percent(both / alone - 1)]
        rows.append([f"context {context:,}", *cells])
    for more in QUOTED_MORE:
        figures[f"quoted_share_{more:.0f}"] = more / QUOTED_STEP * 100
        figures[f"quoted_knee_{more:.0f}"] = (QUOTED_STEP - more) / more
    head = ["8B model, H100 data sheet", "step of one, ms", "each more, ms", "share"]
    return Part(SIMULATED, [Table(head, rows)], figures)
