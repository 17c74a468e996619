"""What happens as load rises: Little's law as a check, and why utilisation is a bad guardrail."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import mean

from benchmarks.textbook.part import SIMULATED, Part, Table, ms, percent, seeded
from benchmarks.textbook.runs import COST, MS, SECOND, Served, ask, counted, quantile
from headway.commands.plan.estimate.fluid import steady_state
from headway.commands.plan.estimate.planned_traffic import PlannedTraffic
from headway.commands.plan.estimate.step_times import StepTimes
from headway.core.lane import Budget, Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.errors import SettingError
from headway.traffic.trace import read_shipped_trace

COUNT, SLOTS, CHUNK = 1_000, 256, 512  # 256 slots: as vLLM has them on such a device
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.1)
LANE = Lane(budget=Budget(ttft=1000 * MS, tpot=25 * MS))
POLICIES = Policies(Continuous(SLOTS), chunk=Fixed(CHUNK), step_tokens=SLOTS + CHUNK)


def asks() -> list[Request]:
    """Recorded lengths, all there at once; prompts cut at 4,096 and answers at 512 tokens."""
    recorded = read_shipped_trace("azure2023-conv")[:COUNT]
    return [ask(i, min(a.prompt, 4096), min(a.answer, 512)) for i, a in enumerate(recorded)]


def poisson(requests: Sequence[Request], rate: float) -> list[Request]:
    draw, at, timed = seeded("load"), 0.0, list[Request]()
    for request in requests:
        at += draw.expovariate(rate) * SECOND
        timed.append(replace(request, arrived=int(at)))
    return timed


def served(requests: Sequence[Request]) -> Served:
    return counted(requests, POLICIES, (LANE,))


@cache
def runs() -> tuple[float, dict[float, Served]]:
    """Requests a second of a full engine, and a run at each share of that."""
    full = served(asks())
    capacity = COUNT / (full.nanoseconds / SECOND)
    return capacity, {load: served(poisson(asks(), load * capacity)) for load in LOADS}


def guardrail() -> Part:
    """Busy, as a device's utilisation counter shows it, beside what callers see."""
    figures, rows = dict[str, float](), list[list[str]]()
    capacity, outcomes = runs()
    for load, run in outcomes.items():
        times = list(run.requests.values())
        good = mean(row.good for row in times)
        wait, pace = (quantile([getattr(r, n) for r in times], 95) for n in ("ttft", "tpot"))
        slots = sum(row.rows * row.nanoseconds for row in run.steps) / run.nanoseconds / SLOTS
        key = f"at_{round(load * 100)}"
        figures |= {f"{key}_busy": run.busy * 100, f"{key}_good": good * 100}
        figures |= {f"{key}_ttft_p95_ms": wait / 1e6, f"{key}_slots": slots * 100}
        cells = [percent(run.busy), percent(slots), ms(wait), ms(pace), percent(good)]
        rows.append([f"{load:.0%}", *cells])
    figures["capacity"] = capacity
    head = ["offered, of a full engine's rate", "busy", "slots in use", "TTFT p95, ms"]
    return Part(SIMULATED, [Table([*head, "TPOT p95, ms", "attainment"], rows)], figures)


def in_system(run: Served) -> float:
    """Mean number of requests between arrival and end, by adding up the time at each number."""
    moves = [(row.arrived, 1) for row in run.requests.values()]
    moves += [(row.finished, -1) for row in run.requests.values()]
    area, count, last = 0, 0, 0
    for time, change in sorted(moves):
        area, last = area + count * (time - last), time
        count += change
    return area / last


def fluid(requests: Sequence[Request], rate: float) -> float:
    """Mean gap by the fluid law, as `headway plan` has it; infinite where no batch keeps up."""
    lengths = tuple((len(request.prompt), request.max_tokens) for request in requests)
    try:
        return steady_state(
            StepTimes(COST), PlannedTraffic("recorded", lengths, rate), rate / SECOND
        ).pace
    except SettingError:
        return float("inf")


def little() -> Part:
    figures, rows = dict[str, float](), list[list[str]]()
    capacity, outcomes = runs()
    alone = served(poisson(asks(), 0.02 * capacity))
    quiet = mean(row.e2e for row in alone.requests.values())
    for load, run in outcomes.items():
        rate = COUNT / run.nanoseconds * SECOND
        stay = mean(row.e2e for row in run.requests.values())
        product, counted = rate * stay / SECOND, in_system(run)
        assert abs(product / counted - 1) < 1e-9, "Little's law is an identity from empty to empty"
        guess = rate * quiet / SECOND
        gap = mean(row.tpot for row in run.requests.values() if row.generated > 1)
        law = fluid(asks(), load * capacity)
        key = f"at_{round(load * 100)}"
        figures |= {f"{key}_in_system": counted, f"{key}_guess": guess, f"{key}_tpot_ms": gap / 1e6}
        cells = [f"{rate:.2f}", ms(stay), f"{product:.2f}", f"{counted:.2f}", f"{guess:.2f}"]
        rows.append([f"{load:.0%}", *cells, ms(gap), ms(law) if law < 1e12 else "none"])
    figures["quiet_e2e_ms"] = quiet / 1e6
    head = ["offered", "served a second", "mean stay, ms", "rate x stay", "counted in the engine"]
    head += ["rate x stay when alone", "TPOT, ms", "fluid law's TPOT"]
    return Part(SIMULATED, [Table(head, rows)], figures)
