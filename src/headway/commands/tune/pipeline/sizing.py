"""How the stages of a pipeline are sized (Sizing), and the sizings beside one (neighbours)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headway.pipelines.simulated.llm_stage import SimulatedLLM
from headway.pipelines.simulated.plan import Plan, Simulated

WINDOW_STEP = 2.0
LEAST_WINDOW, MOST_WINDOW = 1 / 64, 1 / 4  # of the deadline


@dataclass(frozen=True, slots=True)
class StageSizing:
    """One stage's settings that are searched."""

    size: int  # items of a call, at most; of an LLM, its slots
    window: float  # seconds that an item may wait for others
    processes: int


Sizing = tuple[StageSizing, ...]  # by stage


def sizing_of(plan: Plan) -> Sizing:
    """As the plan has it."""
    return tuple([StageSizing(each.size, each.window, each.processes) for each in plan.stages])


def sized(plan: Plan, sizing: Sizing) -> Plan:
    """The plan with these sizes."""
    left = iter(sizing)

    def changed(stage: Simulated) -> Simulated:
        each = next(left)
        return stage.sized(each.size, each.window, each.processes)

    return plan.changed(changed)


def starts(plan: Plan, processes: int) -> list[Sizing]:
    """Where the search begins: as given, and with the largest and small calls without windows.
    Where the processes are not as given, they are divided by what the stages take."""
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
    """One process each, and the others one by one to the stage that needs it most."""
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
    """One thing is changed at a time: a size or a window by a factor of 2, or a process moves."""
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
