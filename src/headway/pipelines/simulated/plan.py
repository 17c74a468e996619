"""A pipeline as a file describes it (Plan): the stages with their costs, and the deadline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.costing.calibration import read_cost_file
from headway.errors import SettingError
from headway.pipelines.graph import Call, Chain, Each, Join, Program, Split, Stage
from headway.pipelines.simulated.llm_stage import SimulatedLLM
from headway.pipelines.simulated.stage import SimulatedStage
from headway.yaml_values import known, mapping, number, read_yaml, whole, wholes

SECONDS = "base", "per_item", "window", "cv"
WHOLES = "size", "processes", "largest"
MAX_WAITING = 1_000
KEYS = ("name", *SECONDS, *WHOLES, "max_waiting", "width")
OF_LLM = "slots", "largest", "kv_tokens"
LLM_KEYS = ("name", "cost", "prompt", "answer", *OF_LLM, "max_waiting", "width")
Simulated = SimulatedStage | SimulatedLLM


@dataclass(frozen=True)
class Plan:
    """A pipeline with its costs and its deadline. Times are in seconds."""

    deadline: float  # of each workflow; 0: none
    graph: Chain  # of SimulatedStages and SimulatedLLMs

    @property
    def stages(self) -> tuple[Simulated, ...]:
        """The stages, in the order in which a workflow passes them."""
        return tuple([stage.work for stage in Program.of(self.graph).stages])

    @property
    def items(self) -> tuple[float, ...]:
        """The items that a workflow has in each stage, on average."""
        program, width, outer, found = Program.of(self.graph), 1.0, list[float](), list[float]()
        for operation in program.operations:
            match operation:
                case Call(at):
                    found.append(width)
                    widths = program.stages[at].work.widths
                case Split():
                    outer.append(width)
                    width *= sum(widths) / len(widths)
                case Join():
                    width = outer.pop()
        return tuple(found)

    def changed(self, change: Callable[[Simulated], Simulated]) -> "Plan":
        """The same plan with each stage changed."""
        return replace(
            self,
            graph=mapped(self.graph, lambda stage: replace(stage, work=change(stage.work))),
        )

    @property
    def plain(self) -> dict[str, Any]:
        """The plan as a file has it."""
        return {"deadline": self.deadline, "stages": _plain(self.graph)}


def mapped(chain: Chain, change: Callable[[Stage], Stage]) -> Chain:
    """The same chain with each stage changed. `change` is called in a workflow's order."""
    return Chain(
        tuple(
            [
                change(part) if isinstance(part, Stage) else Each(mapped(part.chain, change))
                for part in chain.parts
            ]
        )
    )


def read_plan(path: Path) -> Plan:
    """The plan in a YAML file. Raises SettingError, naming the file and the place in it."""
    return plan_of(read_yaml(path), path.name, path.parent)


def plan_of(given: Mapping[str, Any], where: str, folder: Path = Path()) -> Plan:
    """The plan in a mapping. folder: where its cost files are. Raises SettingError."""
    known(given, ("deadline", "stages"), where)
    if "stages" not in given:
        raise SettingError(f"{where}: `stages` is missing")
    deadline = number(given.get("deadline", 0), f"{where}: deadline")
    plan = Plan(deadline, _chain(given["stages"], f"{where}: stages", folder))
    names = [stage.name for stage in plan.stages]
    if len(set(names)) < len(names):
        raise SettingError(f"{where}: stages need distinct names: {names}")
    return plan


def _chain(given: Any, where: str, folder: Path) -> Chain:
    if not isinstance(given, list) or not given:
        raise SettingError(f"{where} is {given!r}; a list of stages is wanted")
    parts = list[Stage | Each]()
    for at, each in enumerate(given):
        fields, place = mapping(each, f"{where}[{at}]"), f"{where}[{at}]"
        if "each" in fields:
            known(fields, ("each",), place)
            parts.append(Each(_chain(fields["each"], f"{place}: each", folder)))
        else:
            parts.append(_stage(fields, place, folder))
    return Chain(tuple(parts))


def _stage(fields: Mapping[str, Any], where: str, folder: Path) -> Stage:
    is_llm = "cost" in fields
    known(fields, LLM_KEYS if is_llm else KEYS, where)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise SettingError(f"{where}: a stage needs a name")
    work = _llm(name, fields, where, folder) if is_llm else _function(name, fields, where)
    if work.most < work.size:
        size = "slots" if is_llm else "size"
        raise SettingError(f"{where}: largest is {work.most}, and {size} {work.size}")
    most = whole(fields.get("max_waiting", MAX_WAITING), f"{where}: max_waiting", 1)
    return Stage(work, name, max_waiting=most)


def _function(name: str, fields: Mapping[str, Any], where: str) -> SimulatedStage:
    for needed in ("base", "per_item"):
        if needed not in fields:
            raise SettingError(f"{where}: {name!r} needs `{needed}`, in seconds")
    values: dict[str, Any] = {
        key: number(fields[key], f"{where}: {key}") for key in SECONDS if key in fields
    }
    values |= {key: whole(fields[key], f"{where}: {key}", 1) for key in WHOLES if key in fields}
    return SimulatedStage(name, widths=_several(fields, "width", where), **values)


def _llm(name: str, fields: Mapping[str, Any], where: str, folder: Path) -> SimulatedLLM:
    for needed in ("prompt", "answer"):
        if needed not in fields:
            raise SettingError(f"{where}: {name!r} needs `{needed}`, in tokens")
    if not isinstance(fields["cost"], str):
        raise SettingError(f"{where}: cost is the name of a file that headway calibrate made")
    path = (folder / fields["cost"]).resolve()
    return SimulatedLLM(
        name,
        read_cost_file(path).cost,
        _several(fields, "prompt", where),
        _several(fields, "answer", where),
        widths=_several(fields, "width", where),
        file=str(path),
        **{key: whole(fields[key], f"{where}: {key}", 1) for key in OF_LLM if key in fields},
    )


def _several(fields: Mapping[str, Any], key: str, where: str) -> tuple[int, ...]:
    """One number, or a list of equally likely ones."""
    given = fields.get(key, 1)
    found = wholes(given if isinstance(given, list) else [given], f"{where}: {key}")
    if not found:
        raise SettingError(f"{where}: {key} is empty")
    return found


def _plain(chain: Chain) -> list[dict[str, Any]]:
    return [
        _plain_stage(part) if isinstance(part, Stage) else {"each": _plain(part.chain)}
        for part in chain.parts
    ]


def _plain_stage(stage: Stage) -> dict[str, Any]:
    work: Simulated = stage.work
    plain: dict[str, Any] = {"name": work.name}
    if isinstance(work, SimulatedLLM):
        plain |= {"cost": work.file, "prompt": _one(work.prompts), "answer": _one(work.answers)}
        plain |= {"slots": work.slots} | ({"kv_tokens": work.kv_tokens} if work.kv_tokens else {})
    else:
        plain |= {"base": work.base, "per_item": work.per_item, "size": work.size}
        plain |= {"window": work.window, "processes": work.processes, "cv": work.cv}
    plain |= {"max_waiting": stage.max_waiting, "largest": work.most}
    return plain if work.widths == (1,) else plain | {"width": _one(work.widths)}


def _one(numbers: tuple[int, ...]) -> int | list[int]:
    return list(numbers) if len(numbers) > 1 else numbers[0]
