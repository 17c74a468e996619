"""KV memory: bytes per token, how many sequences fit, what reserving and sharing change."""

from statistics import mean

from benchmarks.textbook.part import ARITHMETIC, Part, Table, percent
from benchmarks.textbook.runs import ROOM, STEPS, ask, serve
from headway.core.kv.block_table import publish, reserve
from headway.core.kv.blocks import BlockPool
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.sequences.sequence import Sequence
from headway.models import EMBEDDED
from headway.traffic.trace import read_shipped_trace

BLOCK, POOL = 16, 4096  # tokens; blocks
OWN, ANSWER = 128, 128
GIB = 1 << 30
# layers, query heads, KV heads, head size, parameters: from each model's published config
MODELS = {
    "Llama-2-7B": (32, 32, 32, 128, 6.74e9),
    "Llama-2-13B": (40, 40, 40, 128, 13.02e9),
    "Llama-2-70B": (80, 64, 8, 128, 68.98e9),
    "Llama-3.1-8B": (32, 32, 8, 128, 8.03e9),
    "Mistral-7B": (32, 32, 8, 128, 7.24e9),
    "Falcon-7B": (32, 71, 1, 64, 7.22e9),
}
SHARE = 0.9  # of a device's memory that weights and KV may take


def per_token(layers: int, kv_heads: int, head: int, itemsize: int = 2) -> int:
    """Bytes: a key and a value for each layer and KV head. Query heads are not in it."""
    return 2 * layers * kv_heads * head * itemsize


def batch(gigabytes: float, parameters: float, kv: int, tokens: int) -> int:
    """Sequences of so many tokens that fit beside 16-bit weights."""
    return max(0, int((gigabytes * 1e9 * SHARE - 2 * parameters) // (kv * tokens)))


def gqa() -> Part:
    figures, rows = dict[str, float](), list[list[str]]()
    for name, (layers, heads, kv_heads, head, parameters) in MODELS.items():
        cells = [name, f"{heads} / {kv_heads}"]
        devices = 2 if parameters > 4e10 else 1
        for kv in (heads, kv_heads, 1):
            size = per_token(layers, kv, head)
            most = batch(80 * devices, parameters, size, 4096)
            key = name.lower().replace("-", "_").replace(".", "_")
            kind = {heads: "mha", 1: "mqa"}.get(kv, "gqa")
            figures[f"{key}_{kind}_kib"], figures[f"{key}_{kind}_batch"] = size / 1024, most
            cells.append(f"{size / 1024:,.0f} KiB, {most}")
        rows.append(cells)
    figures["llama_2_7b_24gb"] = int((24e9 - 14e9) // (per_token(32, 32, 128) * 2000))
    figures["llama_2_7b_fp32_kib"] = per_token(32, 32, 128, 4) / 1024
    figures["tiny_bytes"] = embedded()
    parameters = MODELS["Mistral-7B"][4]
    figures["mistral_mha_8192_gb"] = (2 * parameters + 8192 * per_token(32, 32, 128)) / 1e9
    for kind, kv in (("mha", 64), ("gqa", 8)):
        most = batch(320, MODELS["Llama-2-70B"][4], per_token(80, kv, 128), 4096)
        figures[f"llama_2_70b_{kind}_batch_320gb"] = most
    full = 80e9 * SHARE / 3.35e12  # seconds in which an H100 reads what weights and KV may take
    figures["full_step_ms"] = full * 1e3
    for kind in ("mha", "gqa"):
        figures[f"full_{kind}_rate"] = figures[f"llama_3_1_8b_{kind}_batch"] / full
    head_row = ["16 bits; batch at 4,096 tokens, 80 GB", "heads / KV heads"]
    head_row += ["if MHA", "as it is", "if MQA"]
    return Part(ARITHMETIC, [Table(head_row, rows)], figures)


def embedded() -> int:
    """Bytes of KV per token of the embedded model in 16 bits, as headway counts them."""
    from headway.executor.torch.config.model_config import read_config

    config = read_config(EMBEDDED)
    counted = config.kv_elements * 2
    assert counted == per_token(config.layers, config.kv_heads, config.head_dim)
    return counted


def fitting(prefix: int) -> int:
    """Sequences that a pool holds at once, when the first has computed what all share."""
    pool, count = BlockPool(POOL, BLOCK), 0
    while True:
        own = tuple(10_000_000 + count * OWN + i for i in range(OWN))
        request = Request(f"r{count}", (*range(prefix), *own), ANSWER, 0)
        sequence = Sequence(count, request, list(request.prompt))
        if not reserve(pool, sequence, whole=True):
            return count
        sequence.computed = len(request.prompt)
        publish(pool, sequence)
        count += 1


def prompts(prefix: int, count: int, sharing: bool) -> int:
    """Prompt tokens that the scheduler computes for `count` requests with a common beginning, all
    sent at once. sharing: one tenant sends them; else each has a tenant of its own."""
    common = (1,) * prefix
    requests = []
    for i in range(count):
        own = (i + 2,) * OWN
        requests.append(Request(f"r{i}", (*common, *own), 1, 0, salt="" if sharing else f"{i}"))
    policies = Policies(join=Continuous(count), step_tokens=ROOM)
    return serve(requests, policies, cost=STEPS).tokens


def prefix() -> Part:
    figures, rows = dict[str, float](), list[list[str]]()
    for shared in (0, 256, 1000, 1024, 4096):
        need = -(-(shared + OWN + ANSWER) // BLOCK)
        alone, fit = POOL // need, fitting(shared)
        saved = shared // BLOCK
        assert fit == 1 + (POOL - need) // (need - saved), "the formula of the page"
        apart, once = prompts(shared, 16, sharing=False), prompts(shared, 16, sharing=True)
        figures |= {f"alone_{shared}": alone, f"fit_{shared}": fit, f"ratio_{shared}": fit / alone}
        figures |= {f"apart_{shared}": apart, f"once_{shared}": once}
        figures[f"saved_{shared}"] = (1 - once / apart) * 100
        cells = [str(alone), str(fit), f"{fit / alone:.2f}", f"{apart:,}", f"{once:,}"]
        rows.append([f"{shared:,} shared + 128 + 128", *cells, percent(1 - once / apart)])
    head = ["tokens: prefix + own + answer", "fit alone", "fit sharing", "ratio"]
    head += ["16 of as many tenants: computed", "16 of one: computed", "saved"]
    return Part(ARITHMETIC, [Table(head, rows)], figures)


def reserving() -> Part:
    """KV memory that a request holds and never fills, by what is set aside for it."""
    figures, rows = dict[str, float](), list[list[str]]()
    for key, name in (("code", "azure2023-code"), ("conv", "azure2023-conv")):
        sizes = [arrival.prompt + arrival.answer for arrival in read_shipped_trace(name)]
        longest = max(sizes)
        paged = sum(-(-size // BLOCK) * BLOCK for size in sizes)
        ways = {
            "longest": 1 - mean(sizes) / longest,
            "power": 1 - sum(sizes) / sum(1 << (size - 1).bit_length() for size in sizes),
            "paged": 1 - sum(sizes) / paged,
        }
        figures |= {f"{key}_{way}": share * 100 for way, share in ways.items()}
        cells = [
            percent(ways["longest"]),
            percent(ways["power"]),
            f"{ways['paged'] * 100:.2f}\u00a0%",
        ]
        rows.append([f"{name}, n = {len(sizes):,}", *cells])
    run = serve([ask(0, 100, 28)], Policies(), cost=STEPS)
    assert run.steps[-2].free_blocks == 200_000 - 8, "128 tokens are 8 blocks, no more"
    head = ["KV memory never filled", "the longest request", "the next power of two"]
    return Part(ARITHMETIC, [Table([*head, "blocks of 16"], rows)], figures)
