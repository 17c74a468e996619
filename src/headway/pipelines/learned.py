"""What a live pipeline has learned about its stages, as a plan to simulate and tune."""

from collections.abc import Sequence
from dataclasses import replace
from math import pi, sqrt

from headway.batching.settings import BatchSettings
from headway.errors import SettingError
from headway.pipelines.course import Place
from headway.pipelines.graph import Program, Stage
from headway.pipelines.ports import BatcherPort
from headway.pipelines.simulated.plan import Plan, mapped
from headway.pipelines.simulated.stage import SimulatedStage

NORMAL = sqrt(pi / 2)  # standard deviation over mean deviation


def learned_plan(program: Program, places: Sequence[Place], deadline: float) -> Plan:
    """The plan of a live pipeline. Raises SettingError for a stage that was not called yet, or that
    is an LLM. deadline: seconds."""
    stages = iter([_stage(program, at, place, places) for at, place in enumerate(places)])
    graph = mapped(program.graph, lambda stage: next(stages))
    return Plan(deadline, graph)


def _stage(program: Program, at: int, place: Place, places: Sequence[Place]) -> Stage:
    port, pace = place.port, place.pace
    if not isinstance(port, BatcherPort):
        raise SettingError(f"stage {place.name!r} is an LLM: its requests are not calls of a list")
    if not pace.cost.is_known:
        raise SettingError(f"stage {place.name!r} has not been called yet")
    settings = port.settings
    processes = max(1, settings.processes)
    base, rate = pace.cost.line
    per_item = rate * pace.cells
    call = base + per_item * pace.items
    width = 1
    if lists := program.lists_after(at):
        elements = places[at + 1].pace.width / max(1.0, pace.width)
        width = max(1, round(elements ** (1 / lists)))
    work = SimulatedStage(
        place.name,
        base / 1e9,
        per_item * processes / 1e9,
        size=_size(settings, pace.cells),
        window=settings.window,
        processes=processes,
        cv=NORMAL * pace.cost.deviation / call,
        widths=(width,),
    )
    return replace(program.stages[at], work=work, name=place.name, lane="", settings={})


def _size(settings: BatchSettings, cost: float) -> int:
    """Items of a call, or of each process's share, that the size and max_cost allow. cost: of an
    item, on average."""
    if not settings.max_cost:
        return settings.size
    allowed = int(settings.max_cost / cost) // max(1, settings.processes)
    return max(1, min(settings.size, allowed))
