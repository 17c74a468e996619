"""How a pipeline's stages are sized (Sizing), and the sizings one change away (neighbours)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headway.pipelines.simulated.llm_stage import SimulatedLLM
from headway.pipelines.simulated.plan import Plan, Simulated

WINDOW_STEP = 2.0
LEAST_WINDOW, MOST_WINDOW = 1 / 64, 1 / 4  # of the deadline


@dataclass(frozen=True, slots=True)
class StageSizing:
    """The settings of one stage that the search varies."""

    size: int  # items of a call, at most; for an LLM, its slots
    window: float  # seconds that an item may wait for more items
    processes: int


Sizing = tuple[StageSizing, ...]  # by stage


def sizing_of(plan: Plan) -> Sizing:
    """The sizing that a plan has."""
    return tuple([StageSizing(each.size, each.window, each.processes) for each in plan.stages])


def sized(plan: Plan, sizing: Sizing) -> Plan:
    """The plan with these sizes."""
    left = iter(sizing)

    def changed(stage: Simulated) -> Simulated:
        each = next(left)
        return stage.sized(each.size, each.window, each.processes)

    return plan.changed(changed)


def starts(plan: Plan, processes: int) -> list[Sizing]:
    """Where the search begins: the sizing as given, and without windows the largest calls and
    calls of at most 8. A different number of processes is first divided by the stages' work."""
    given = sizing_of(plan)
    if processes != sum([each.processes for each in given]):
        given = _divided(plan, given, processes)
    found = [given]
    for most in (10**9, 8):
        sizes = [
            replace(each, size=min(most, stage.most), window=0.0)
            for each, stage in zip(given, plan.stages, strict=True)
        ]
        if tuple(sizes) not in found:
            found.append(tuple(sizes))
    return found


def _divided(plan: Plan, sizing: Sizing, processes: int) -> Sizing:
    """Give each stage one process, and each further one to the stage with the most work per
    process (ties: the earlier stage). An LLM stage gets no further one while others have work."""
    counts = [1] * len(sizing)
    weights = [
        0.0 if isinstance(stage, SimulatedLLM) else items * stage.least_seconds
        for stage, items in zip(plan.stages, plan.items, strict=True)
    ]
    for _ in range(processes - len(sizing)):
        at = max(range(len(counts)), key=lambda at: weights[at] / counts[at])
        counts[at] += 1
    return tuple(
        [replace(each, processes=count) for each, count in zip(sizing, counts, strict=True)]
    )


def neighbours(plan: Plan, sizing: Sizing) -> Iterator[Sizing]:
    """Sizings with one change: a size or a window by a factor of 2 (or a window from or to 0), or
    one process moved to another stage."""
    for at, (each, stage) in enumerate(zip(sizing, plan.stages, strict=True)):
        for size in (each.size // 2, min(2 * each.size, stage.most)):
            if size >= 1 and size != each.size:
                yield _with(sizing, at, replace(each, size=size))
        if isinstance(stage, SimulatedLLM):
            continue
        for window in _windows(each.window, plan.deadline):
            yield _with(sizing, at, replace(each, window=window))
    llms = [at for at, stage in enumerate(plan.stages) if isinstance(stage, SimulatedLLM)]
    for give, giver in enumerate(sizing):
        for take, taker in enumerate(sizing):
            if give != take and giver.processes > 1 and take not in llms:
                less = _with(sizing, give, replace(giver, processes=giver.processes - 1))
                yield _with(less, take, replace(taker, processes=taker.processes + 1))


def _windows(window: float, deadline: float) -> list[float]:
    least, most = deadline * LEAST_WINDOW, deadline * MOST_WINDOW
    if not window:
        return [least]
    lower = window / WINDOW_STEP
    found = [lower if lower >= least * 0.99 else 0.0]
    if window * WINDOW_STEP <= most:
        found.append(window * WINDOW_STEP)
    return found


def _with(sizing: Sizing, at: int, each: StageSizing) -> Sizing:
    return (*sizing[:at], each, *sizing[at + 1 :])
