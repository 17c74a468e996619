"""Continuous against dynamic batching: requests a second, the tail, and slots that stand empty."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

from benchmarks.textbook.lengths import expected_longest, exponential, gain, uniform
from benchmarks.textbook.part import ARITHMETIC, SIMULATED, Part, Table, percent, seeded
from benchmarks.textbook.runs import MS, ROOM, SECOND, ask, counted, quantile
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Dynamic, Join, Static
from headway.core.policies.mix import PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.traffic.trace import read_shipped_trace

TABLES = {"first": (30, 60, 150, 200), "second": (40, 80, 200, 200)}  # quoted: requests a second
COUNT, SIZE, WINDOW, CHUNK = 1_000, 16, 50 * MS, 512
LOAD = 0.8  # of dynamic batching's capacity
TRACES = {"conv": "azure2023-conv", "code": "azure2023-code"}
WAYS = ("alone", "static", "dynamic", "continuous")
LARGE = 64  # of the groups that are said to leave 20 to 30 % unused
GAINS = (1.2, 1.3, 3.0, 5.0)  # quoted, of continuous over dynamic


def policies() -> dict[str, Policies]:
    grouped: dict[str, Join] = {"static": Static(SIZE), "dynamic": Dynamic(SIZE, WINDOW)}
    ways = {
        name: Policies(join, mix=PrefillFirst(), step_tokens=ROOM) for name, join in grouped.items()
    }
    ways["alone"] = Policies(Continuous(1), step_tokens=ROOM)
    ways["continuous"] = Policies(Continuous(SIZE), chunk=Fixed(CHUNK), step_tokens=SIZE + CHUNK)
    return ways


def asks(trace: str) -> list[Request]:
    """Recorded lengths, all there at once; prompts cut at 4,096 and answers at 512 tokens."""
    recorded = read_shipped_trace(trace)[:COUNT]
    return [ask(i, min(a.prompt, 4096), min(a.answer, 512)) for i, a in enumerate(recorded)]


def poisson(requests: Sequence[Request], rate: float, name: str) -> list[Request]:
    draw, at, timed = seeded(name), 0.0, list[Request]()
    for request in requests:
        at += draw.expovariate(rate) * SECOND
        timed.append(replace(request, arrived=int(at)))
    return timed


def rates() -> Part:
    """A backlog of recorded requests, to its end; and the tail at 80 % of dynamic's rate."""
    figures, rows = dict[str, float](), list[list[str]]()
    ways = policies()
    for key, trace in TRACES.items():
        backlog = asks(trace)
        served = {way: COUNT / counted(backlog, ways[way]).nanoseconds * SECOND for way in WAYS}
        figures |= {f"{key}_{way}": rate for way, rate in served.items()}
        figures[f"{key}_gain"] = served["continuous"] / served["dynamic"]
        timed = poisson(backlog, LOAD * served["dynamic"], f"rates {key}")
        tails = {}
        for way in ("dynamic", "continuous"):
            stays = [row.e2e for row in counted(timed, ways[way]).requests.values()]
            tails[way] = quantile(stays, 99)
            figures[f"{key}_{way}_p99_s"] = tails[way] / SECOND
        figures[f"{key}_p99_gain"] = tails["dynamic"] / tails["continuous"]
        cells = [f"{served[way]:.1f}" for way in WAYS]
        cells += [f"{tails[way] / SECOND:.2f}" for way in ("dynamic", "continuous")]
        rows.append([f"{trace}, n = {COUNT:,}", *cells])
    for key, (first, second, least, most) in TABLES.items():
        figures |= {f"{key}_dynamic": second / first, f"{key}_least": least / second}
        figures[f"{key}_most"] = most / second
    head = ["16 at once, requests a second", "one by one", "static", "dynamic", "continuous"]
    head += ["e2e p99 at 80 %, dynamic, s", "continuous, s"]
    return Part(SIMULATED, [Table(head, rows)], figures)


def spread(ratio: float, size: int) -> float:
    """How far lengths lie around their mean, as a share of it, if they are uniform and the longest
    of so many is this many times the mean: mean x (1 + s (n - 1) / (n + 1))."""
    return (ratio - 1) * (size + 1) / (size - 1)


def unused() -> Part:
    """Slots' steps left unused in groups of 64: 1 - mean / longest."""
    figures, rows = dict[str, float](), list[list[str]]()
    even, memoryless = uniform(200), exponential(100)
    gains = {
        "uniform": ("uniform, 1 to 200", expected_longest(even, LARGE) / expected_longest(even, 1)),
        "exponential": (
            "exponential",
            expected_longest(memoryless, LARGE) / expected_longest(memoryless, 1),
        ),
    }
    for key, trace in TRACES.items():
        answers = [arrival.answer for arrival in read_shipped_trace(trace)]
        gains[key] = (f"{trace}, mean {mean(answers):.0f}", gain(answers, LARGE))
    for key, (words, ratio) in gains.items():
        figures[key] = (1 - 1 / ratio) * 100
        rows.append([words, f"{ratio:.2f}", percent(1 - 1 / ratio)])
    for share in (20, 30):
        figures[f"spread_{share}"] = spread(1 / (1 - share / 100), LARGE) * 100
    for ratio in GAINS:
        figures[f"spread_{round(ratio * 10)}_of_16"] = spread(ratio, SIZE) * 100
    head = ["answers, groups of 64", "longest / mean", "slots' steps unused"]
    return Part(ARITHMETIC, [Table(head, rows)], figures)
