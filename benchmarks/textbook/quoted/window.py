"""A window of 20 ms: how many requests it collects, what it costs them, and what it gains."""

from benchmarks.textbook.part import SIMULATED, Part, Table, seeded
from benchmarks.textbook.runs import MS, ROOM, SECOND, ask, counted
from headway.core.cost.step_cost import StepCost
from headway.core.policies.join import Dynamic
from headway.core.policies.policies import Policies
from headway.core.request import Request

WINDOW, SIZE, COUNT = 20 * MS, 64, 4_096
RATES = (10, 50, 100, 200)  # requests a second
QUICK = StepCost.of(MS // 100)  # 10 us a step: no request waits behind a group
SLOW = StepCost.of(10 * MS)  # 10 ms a step, whatever is in it


def poisson(rate: float) -> list[Request]:
    """Requests of one token and an answer of one token: a group is one step."""
    draw, at, requests = seeded(f"window {rate:g}"), 0.0, list[Request]()
    for number in range(COUNT):
        at += draw.expovariate(rate) * SECOND
        requests.append(ask(number, 1, 1, int(at)))
    return requests


def groups(rate: float, window: int, cost: StepCost) -> tuple[float, float, float]:
    """Mean size of a group, mean wait in ms, and requests served a second."""
    run = counted(poisson(rate), Policies(Dynamic(SIZE, window), step_tokens=ROOM), cost=cost)
    waits = [row.queue for row in run.requests.values()]
    return COUNT / len(run.steps), sum(waits) / COUNT / MS, COUNT / run.nanoseconds * SECOND


def collecting() -> Part:
    """A group is the request that opens the window and those that come in it: 1 + rate x window."""
    figures, rows = dict[str, float](), list[list[str]]()
    for rate in RATES:
        law = 1 + rate * WINDOW / SECOND
        # the first waits the whole window, the others half of it on average
        wait = WINDOW / MS * (1 + (law - 1) / 2) / law
        size, waited, _ = groups(rate, WINDOW, QUICK)
        figures |= {f"size_{rate}": size, f"law_{rate}": law}
        figures |= {f"wait_{rate}": waited, f"wait_law_{rate}": wait}
        cells = [f"{law:.1f}", f"{size:.2f}", f"{wait:.1f}", f"{waited:.1f}"]
        rows.append([f"{rate}", *cells])
    for window in (0, WINDOW):  # 10 ms a step: two groups' worth of requests come in each
        size, waited, served = groups(200, window, SLOW)
        key = f"busy_{window // MS}"
        figures |= {f"{key}_size": size, f"{key}_wait": waited, f"{key}_rate": served}
    full = {window: groups(20_000, window, SLOW)[2] for window in (0, WINDOW)}
    figures |= {"full_0": full[0], f"full_{WINDOW // MS}": full[WINDOW]}
    figures["full_gain"] = full[WINDOW] / full[0]
    head = ["requests a second", "group, 1 + rate x window", "simulated", "mean wait, ms"]
    return Part(SIMULATED, [Table([*head, "simulated wait"], rows)], figures)
