"""What a long prompt does to the answers under way, and what cutting it in chunks costs."""

from collections.abc import Sequence
from statistics import median

from benchmarks.textbook.part import SIMULATED, Part, Table, ms
from benchmarks.textbook.runs import COST, ROOM, SECOND, Served, ask, serve
from headway.core.cost.features import row_features
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.mix import Alternate, Mixed, PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.request import Request

RUNNING, CONTEXT, LONG, CHUNKS = 8, 512, 8192, (64, 128, 256, 512, 1024, 2048)


def policies(chunks: Sequence[int], running: int) -> dict[str, Policies]:
    """By name: whole prompts under three mixes, then chunks."""
    join = Continuous(running + 4)
    ways = {
        "prefill_first": Policies(join, mix=PrefillFirst(), step_tokens=ROOM),
        "alternating": Policies(join, mix=Alternate(), step_tokens=ROOM),
        "mixed_whole": Policies(join, mix=Mixed(), step_tokens=ROOM),
    }
    for size in chunks:
        ways[f"chunks_{size}"] = Policies(join, chunk=Fixed(size), step_tokens=size + running + 4)
    return ways


def workload(running: int, context: int, long: int, answer: int, at: int) -> list[Request]:
    """Answers under way, and a long prompt that arrives among them."""
    early = [ask(i, context, answer) for i in range(running)]
    return [*early, ask(running, long, 16, at, "default")]


def words(name: str) -> str:
    kind, _, size = name.rpartition("_")
    return f"mixed, chunks of {size}" if kind == "chunks" else name.replace("_", " ")


def pairs(prompt: int, chunk: int) -> int:
    """(query, key) pairs of a prompt that is computed in chunks."""
    starts = range(0, prompt, chunk)
    return sum(row_features(start, min(chunk, prompt - start)).pairs for start in starts)


def figures_of(served: Served, at: int, running: int) -> tuple[int, int, int]:
    """The running answers' largest and median gap from `at` on, and the newcomer's TTFT."""
    ids = [f"default-{i}" for i in range(running)]
    first = served.requests[f"default-{running}"].first_token
    gaps = [gap for id in ids for gap in served.gaps(id, at)]
    largest = max(gaps)
    during = [
        b - a
        for id in ids
        for a, b in zip(served.heard[id], served.heard[id][1:], strict=False)
        if b > at and a < first
    ]
    return largest, round(median(during)), first - at


def stall() -> Part:
    at = 2 * SECOND
    figures, rows = dict[str, float](), list[list[str]]()
    for name, way in policies(CHUNKS, RUNNING).items():
        served = serve(workload(RUNNING, CONTEXT, LONG, 600, at), way)
        largest, usual, first = figures_of(served, at, RUNNING)
        chunk = int(name.rpartition("_")[2]) if name.startswith("chunks") else LONG
        steps = -(-LONG // chunk)
        loads = sum(range(0, LONG, chunk))
        figures |= {f"{name}_gap_ms": largest / 1e6, f"{name}_ttft_ms": first / 1e6}
        figures[f"{name}_usual_ms"] = usual / 1e6
        assert pairs(LONG, chunk) == row_features(0, LONG).pairs, "chunks compute the same pairs"
        during = ms(usual) if steps > 1 else "-"
        rows.append([words(name), ms(largest), during, ms(first), str(steps), f"{loads:,}"])
    figures["pairs"] = row_features(0, LONG).pairs
    figures["quiet_ms"] = median(served.gaps("default-0")) / 1e6
    for chunk in (512, 2048):
        figures[f"reloads_{chunk}"] = sum(range(0, LONG, chunk)) / LONG
    figures["reloads_64_ms"] = sum(range(0, LONG, 64)) * COST.device.read / 1e9
    figures["knee"] = COST.knee
    figures["step_ms"] = COST.predict(row_features(CONTEXT, 1, logits=1)) / 1e6
    figures["prompt_rate"] = LONG / (COST.predict(row_features(0, LONG, logits=1)) / SECOND)
    head = [
        "8 answers under way, 8,192 tokens arrive",
        "largest gap, ms",
        "median until its first token",
    ]
    head += ["TTFT of the long prompt", "steps of it", "keys read again"]
    return Part(SIMULATED, [Table(head, rows)], figures)
