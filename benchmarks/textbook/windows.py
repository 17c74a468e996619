"""One window for all endpoints, or one for each: who pays, and how much."""

from statistics import mean

from benchmarks.textbook.part import SIMULATED, Part, Table, ms, seeded
from benchmarks.textbook.runs import MS, ROOM, SECOND, Served, ask, quantile, serve, ttfts
from headway.core.lane import Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Dynamic, Join
from headway.core.policies.mix import PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.request import Request

LANES = (Lane("voice", priority=0), Lane("drafts", priority=1))
SIZE, SPAN = 16, 200 * SECOND
# requests a second, prompt tokens, answered tokens
RATES = {"voice": (1.0, 32, 12), "drafts": (3.0, 256, 24)}


def traffic() -> list[Request]:
    """Poisson arrivals of a sparse, urgent service and of a busier, patient one."""
    requests = list[Request]()
    for lane, (rate, prompt, answer) in RATES.items():
        draw, at = seeded(lane), 0.0
        while (at := at + draw.expovariate(rate) * SECOND) < SPAN:
            requests.append(ask(len(requests), prompt, answer, int(at), lane))
    return sorted(requests, key=lambda request: request.arrived)


def joins() -> dict[str, tuple[str, Join]]:
    ways: dict[str, tuple[str, Join]] = {
        f"all_{window}": (f"one window, {window} ms", Dynamic(SIZE, window * MS))
        for window in (10, 50, 200, 1000, 4000)
    }
    windows = {"voice": 10 * MS, "drafts": 1000 * MS}
    ways["each"] = ("voice 10 ms, drafts 1,000 ms", Dynamic(SIZE, 1000 * MS, windows))
    ways["continuous"] = ("continuous, chunks of 256", Continuous(SIZE))
    return ways


def groups_of(served: Served) -> float:
    """Mean number of requests that started together."""
    begun: dict[int, int] = {}
    for row in served.requests.values():
        begun[row.first_scheduled] = begun.get(row.first_scheduled, 0) + 1
    return mean(begun.values())


def windows() -> Part:
    figures, rows, requests = dict[str, float](), list[list[str]](), traffic()
    for key, (words, join) in joins().items():
        if isinstance(join, Continuous):
            policies = Policies(join, chunk=Fixed(256), step_tokens=SIZE + 256)
        else:
            policies = Policies(join, mix=PrefillFirst(), step_tokens=ROOM)
        served = serve(requests, policies, LANES)
        voice, drafts = ttfts(served, "voice"), ttfts(served, "drafts")
        spent = sum(row.nanoseconds for row in served.steps) / len(requests)
        figures |= {
            f"{key}_voice_p50_ms": quantile(voice, 50) / 1e6,
            f"{key}_voice_p95_ms": quantile(voice, 95) / 1e6,
            f"{key}_drafts_p95_ms": quantile(drafts, 95) / 1e6,
            f"{key}_group": groups_of(served),
            f"{key}_device_ms": spent / 1e6,
            f"{key}_busy": served.busy * 100,
        }
        cells = [ms(quantile(voice, 50)), ms(quantile(voice, 95)), ms(quantile(drafts, 95))]
        rows.append([words, *cells, f"{groups_of(served):.1f}", ms(spent), f"{served.busy:.0%}"])
    counts = {lane.name: sum(r.lane == lane.name for r in requests) for lane in LANES}
    figures |= {f"n_{name}": count for name, count in counts.items()}
    head = ["groups of up to 16", "voice TTFT p50, ms", "voice p95", "drafts p95", "mean group"]
    return Part(SIMULATED, [Table([*head, "device ms a request", "busy"], rows)], figures)
