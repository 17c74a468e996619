"""Recorded traffic in three lanes, cut so that it is a stated load of a device.

azure2023-code is the lane `completion`; a request of azure2023-conv is `chat`, or `batch` one time
in three. Each trace begins anywhere and wraps around. The window ends where its work is as much as
the device is to have, and its times are then stretched to the length of a trial. So one set of
requests is scaled, and its load is exact to one request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from heapq import merge
from pathlib import Path
from random import Random

from benchmarks.budgets.mixes import (
    ACCELERATOR,
    CODE,
    CONV,
    MODEL,
    MS,
    SECOND,
    SHARED,
    arrivals,
)
from headway.core.cost.features import NONE, row_features
from headway.core.lane import Budget, Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.costing.calibration import Calibration, read_cost_file
from headway.costing.datasheet import analytical_calibration, read_accelerator, read_shape
from headway.costing.request_spec import RequestSpec
from headway.costing.token_cost import TokenCost
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.trace import Arrival

SEED, SECONDS, LOAD = 0, 1_800, 0.6
SLOTS, CONTEXT = 256, 8_192
CHUNK, TYPICAL = 512, 1_000  # tokens of a step full of prompts, and behind a row that answers
MOST_TURNS = 20  # of a trace in one window
NOISE = Path("examples/cost.json")  # a measured one: how far steps are off their price
LANES = (
    Lane("completion", Budget(ttft=SECOND, tpot=50 * MS), 0),
    Lane("chat", Budget(ttft=2 * SECOND, tpot=80 * MS), 1),
    Lane("batch", Budget(e2e=120 * SECOND), 2),
)
NAMES = tuple(lane.name for lane in LANES)
STRATEGY = Policies(Continuous(SLOTS), chunk=Fixed(CHUNK), step_tokens=SLOTS + CHUNK)


@dataclass(frozen=True, slots=True)
class Window:
    """What is offered in one trial."""

    specs: tuple[RequestSpec, ...]  # by arrival, from 0 to SECONDS
    load: float  # predicted device time at full batches, over SECONDS


@cache
def device() -> Calibration:
    """The data sheet's accelerator. A data sheet says nothing of noise, so its steps vary as those
    of a measured machine: by its residuals, and with its echoes of slow moments."""
    shape, sheet = read_shape(MODEL), read_accelerator(ACCELERATOR)
    made = analytical_calibration(shape, sheet, MODEL, SLOTS, CONTEXT)
    noise = read_cost_file(NOISE).cost
    cost = replace(made.cost, residuals=noise.residuals, echoes=noise.echoes)
    return replace(made, cost=cost)


def full_price() -> TokenCost:
    """Nanoseconds of a token in a step full of prompts, and in one full of answers."""
    cost, full = device().cost, sum([row_features(TYPICAL, 1, 1)] * SLOTS, NONE)
    return TokenCost(cost.predict(row_features(0, CHUNK, 1)) / CHUNK, cost.predict(full) / SLOTS)


def recorded_folder() -> Path | None:
    """Where the traces are in full; None: the windows of them that ship."""
    return SHARED if (SHARED / f"{CONV}.csv.gz").is_file() else None


def window(run: int, folder: Path | None, slow: float = 1.0) -> Window:
    """The requests of a run, by arrival. slow: times the device's price."""
    random, price = Random(f"{SEED} run {run}"), full_price()
    time = SECONDS * SECOND / slow  # of the device as it is
    wanted, work = LOAD * time, 0.0
    taken = list[RequestSpec]()
    for spec in merge(*_turning(random, folder), key=lambda spec: spec.at):
        work += price.of([spec])
        if work > wanted:
            pace = SECONDS * SECOND / spec.at
            specs = tuple([replace(each, at=int(each.at * pace)) for each in taken])
            return Window(specs, price.of(specs) / time)
        taken.append(spec)
    raise AssertionError(f"{MOST_TURNS} turns of the traces are less work than a load of {LOAD}")


def _turning(random: Random, folder: Path | None) -> list[Iterator[RequestSpec]]:
    """Both traces from a moment that is drawn, going round."""
    return [
        _turned(arrivals(folder, trace), lanes, random.random(), Random(random.random()))
        for trace, lanes in ((CODE, NAMES[:1]), (CONV, ("chat", "chat", "batch")))
    ]


def _turned(
    listed: Sequence[Arrival], lanes: tuple[str, ...], begin: float, random: Random
) -> Iterator[RequestSpec]:
    """begin: the share of the trace that lies before the window."""
    specs = list(RecordedTrace(listed, "", scale=1).specs(lanes[0], SEED, CONTEXT))
    whole = specs[-1].at + SECOND
    first = int(begin * whole)
    for turn in range(MOST_TURNS):
        for spec in specs:
            if (at := spec.at + turn * whole - first) >= 0:
                yield replace(spec, at=at, lane=random.choice(lanes))
