"""Makes the live stages of a graph: what computes each one, and its name."""

from contextlib import ExitStack
from typing import Any

from headway.batching.batcher import Batcher
from headway.batching.decorator import BatchedFunction
from headway.errors import SettingError
from headway.llm.offered_answers import OfferedAnswers
from headway.pipelines.course import Place
from headway.pipelines.graph import Call, Program, Stage
from headway.pipelines.pace import Pace
from headway.pipelines.ports import BatcherPort, Ears

# Stage.max_waiting bounds the lines at the door, so no item is refused in the middle.
UNBOUNDED = 2**62


def live_places(program: Program, ears: Ears, closing: ExitStack) -> list[Place]:
    """The stages of a live pipeline. `closing` ends the batchers that are started here.

    Raises SettingError.
    """
    places = list[Place]()
    for number, stage in enumerate(program.stages):
        place = _place(stage, ears, closing)
        name, same = place.name, 1
        while name in [each.name for each in places]:
            same += 1
            name = f"{place.name} {same}"
        is_last = number == len(program.stages) - 1
        if streams(place) and not (is_last and program.operations[-1] == Call(number)):
            raise SettingError(f"stage {name!r} yields pieces: only the last stage can")
        places.append(place._replace(name=name))
    return places


def streams(place: Place) -> bool:
    """Whether the stage's function yields pieces, and has no result beside them."""
    return isinstance(place.port, BatcherPort) and place.port.streams


def gives_pieces(program: Program, place: Place) -> bool:
    """Whether callers can get the last stage's pieces. place: the last stage."""
    ends = program.operations[-1] == Call(len(program.stages) - 1)
    return ends and (streams(place) or not isinstance(place.port, BatcherPort))


def _place(stage: Stage, ears: Ears, closing: ExitStack) -> Place:
    work = stage.work
    if isinstance(work, BatchedFunction):
        _check_no_settings(stage, "the decorator has them")
    elif isinstance(work, Batcher):
        _check_no_settings(stage, "the Batcher has them")
    elif isinstance(work, OfferedAnswers):
        return _llm_place(stage, ears)
    elif callable(work):
        work = closing.enter_context(Batcher(work, **_settings(stage)))
    else:
        raise SettingError(f"a {type(work).__name__} is no stage of a live pipeline")
    port = BatcherPort(work, stage.lane, ears)
    settings = port.settings
    if stage.lane and stage.lane not in settings.lanes:
        known = ", ".join(settings.lanes)
        raise SettingError(f"stage {port.name!r} has no lane {stage.lane!r}; there are {known}")
    pace = Pace(settings.size * max(1, settings.processes), stage.max_waiting)
    return Place(stage.name or port.name.rpartition(".")[2], port, pace)


def _settings(stage: Stage) -> dict[str, Any]:
    settings = dict(stage.settings)
    if "lanes" in settings or stage.lane:
        raise SettingError("a function of a pipeline has one lane: give a Batcher for more")
    return {**settings, "max_waiting": UNBOUNDED}


def _check_no_settings(stage: Stage, why: str) -> None:
    if stage.settings:
        raise SettingError(f"{next(iter(stage.settings))} cannot be set here: {why}")


def _llm_place(stage: Stage, ears: Ears) -> Place:
    # Imported here, because pipelines of functions need neither.
    from headway.llm.options import Options
    from headway.pipelines.llm_port import LLMPort

    if strange := set(stage.settings) - {"options"}:
        raise SettingError(f"there is no setting {sorted(strange)[0]!r} of an LLM; only options")
    if stage.lane:
        raise SettingError("an LLM has one lane")
    port = LLMPort(stage.work, stage.settings.get("options", Options()), ears)
    slots = stage.work.policies.slots or 1
    return Place(stage.name or "generate", port, Pace(slots, stage.max_waiting, calls=False))
