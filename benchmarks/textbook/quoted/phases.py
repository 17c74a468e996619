"""Prefill and decode apart or together, and the size of the chunks."""

from functools import cache

from benchmarks.textbook.load import LANE
from benchmarks.textbook.part import SIMULATED, Part, Table, ms
from benchmarks.textbook.quoted.continuous import asks, poisson
from benchmarks.textbook.runs import ROOM, SECOND, Served, counted, quantile
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.mix import Alternate, Mixed, PrefillFirst
from headway.core.policies.policies import Policies

COUNT, SLOTS, CHUNK, LOAD = 500, 128, 512, 0.7
CHUNKS = (128, 256, 512, 1024, 2048)
JOIN = Continuous(SLOTS)


def policies() -> dict[str, tuple[str, Policies]]:
    """128 slots beside 512 prompt tokens: a step is at most 80 % prompts and 20 % answers."""
    room = SLOTS + CHUNK
    ways = {
        "first": ("prompts first, whole", Policies(JOIN, mix=PrefillFirst(), step_tokens=ROOM)),
        "turns_whole": ("in turn, whole", Policies(JOIN, mix=Alternate(), step_tokens=ROOM)),
        "turns": (
            f"in turn, chunks of {CHUNK}",
            Policies(JOIN, mix=Alternate(), chunk=Fixed(CHUNK), step_tokens=room),
        ),
    }
    for size in CHUNKS:
        way = Policies(JOIN, mix=Mixed(), chunk=Fixed(size), step_tokens=SLOTS + size)
        ways[f"mixed_{size}"] = (f"together, chunks of {size:,}", way)
    return ways


@cache
def backlog() -> dict[str, Served]:
    requests = asks("azure2023-conv")[:COUNT]
    return {name: counted(requests, way, (LANE,)) for name, (_, way) in policies().items()}


def phases() -> Part:
    """Recorded chat as a backlog, then at 70 % of what chunks of 512 together serve."""
    figures, rows = dict[str, float](), list[list[str]]()
    full = {name: COUNT / run.nanoseconds * SECOND for name, run in backlog().items()}
    timed = poisson(asks("azure2023-conv")[:COUNT], LOAD * full[f"mixed_{CHUNK}"], "phases")
    for name, (words, way) in policies().items():
        run = counted(timed, way, (LANE,))
        times = list(run.requests.values())
        wait, pace = (quantile([getattr(row, n) for row in times], 95) for n in ("ttft", "tpot"))
        figures |= {f"{name}_rate": full[name], f"{name}_ttft_ms": wait / 1e6}
        figures[f"{name}_tpot_ms"] = pace / 1e6
        rows.append([words, f"{full[name]:.1f}", ms(wait), ms(pace)])
    together = full[f"mixed_{CHUNK}"]
    figures["together_gain"] = (together / full["turns"] - 1) * 100
    figures["whole_gain"] = (together / full["turns_whole"] - 1) * 100
    figures["large_gain"] = (full["mixed_2048"] / full["mixed_256"] - 1) * 100
    figures["prompts"] = CHUNK / (SLOTS + CHUNK) * 100
    head = ["128 slots, azure2023-conv", "backlog, requests a second"]
    return Part(SIMULATED, [Table([*head, "at 70 %: TTFT p95, ms", "TPOT p95, ms"], rows)], figures)
