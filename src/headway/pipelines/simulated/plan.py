"""A pipeline as a file has it (Plan): its stages with what they cost, and its deadline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.errors import SettingError
from headway.pipelines.graph import Call, Chain, Each, Join, Program, Split, Stage
from headway.pipelines.simulated.stage import SimulatedStage
from headway.yaml_values import known, mapping, number, read_yaml, whole, wholes

SECONDS = "base", "per_item", "window", "cv"
WHOLES = "size", "processes", "largest"
MAX_WAITING = 1_000
KEYS = ("name", *SECONDS, *WHOLES, "max_waiting", "width")


@dataclass(frozen=True)
class Plan:
    """Seconds everywhere."""

    deadline: float  # of each workflow; 0: none
    graph: Chain  # of SimulatedStages

    @property
    def stages(self) -> tuple[SimulatedStage, ...]:
        """In the order in which a workflow passes them."""
        return tuple([stage.work for stage in Program.of(self.graph).stages])

    @property
    def items(self) -> tuple[float, ...]:
        """Items that a workflow has in each stage, on average."""
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

    def changed(self, change: Callable[[SimulatedStage], SimulatedStage]) -> "Plan":
        """The same with other stages."""
        return replace(
            self,
            graph=mapped(self.graph, lambda stage: replace(stage, work=change(stage.work))),
        )

    @property
    def plain(self) -> dict[str, Any]:
        """As its file has it."""
        return {"deadline": self.deadline, "stages": _plain(self.graph)}


def mapped(chain: Chain, change: Callable[[Stage], Stage]) -> Chain:
    """The same chain with other stages. They are asked for in a workflow's order."""
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
    return plan_of(read_yaml(path), path.name)


def plan_of(given: Mapping[str, Any], where: str) -> Plan:
    """A plan from a mapping. Raises SettingError."""
    known(given, ("deadline", "stages"), where)
    if "stages" not in given:
        raise SettingError(f"{where}: `stages` is missing")
    deadline = number(given.get("deadline", 0), f"{where}: deadline")
    plan = Plan(deadline, _chain(given["stages"], f"{where}: stages"))
    names = [stage.name for stage in plan.stages]
    if len(set(names)) < len(names):
        raise SettingError(f"{where}: stages need distinct names: {names}")
    return plan


def _chain(given: Any, where: str) -> Chain:
    if not isinstance(given, list) or not given:
        raise SettingError(f"{where} is {given!r}; a list of stages is wanted")
    parts = list[Stage | Each]()
    for at, each in enumerate(given):
        fields, place = mapping(each, f"{where}[{at}]"), f"{where}[{at}]"
        if "each" in fields:
            known(fields, ("each",), place)
            parts.append(Each(_chain(fields["each"], f"{place}: each")))
        else:
            parts.append(_stage(fields, place))
    return Chain(tuple(parts))


def _stage(fields: Mapping[str, Any], where: str) -> Stage:
    known(fields, KEYS, where)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise SettingError(f"{where}: a stage needs a name")
    for needed in ("base", "per_item"):
        if needed not in fields:
            raise SettingError(f"{where}: {name!r} needs `{needed}`, in seconds")
    values: dict[str, Any] = {
        key: number(fields[key], f"{where}: {key}") for key in SECONDS if key in fields
    }
    values |= {key: whole(fields[key], f"{where}: {key}", 1) for key in WHOLES if key in fields}
    width = fields.get("width", 1)
    widths = wholes(width if isinstance(width, list) else [width], f"{where}: width")
    if not widths:
        raise SettingError(f"{where}: width is empty")
    work = SimulatedStage(name, widths=widths, **values)
    if work.most < work.size:
        raise SettingError(f"{where}: largest is {work.most}, and size {work.size}")
    most = whole(fields.get("max_waiting", MAX_WAITING), f"{where}: max_waiting", 1)
    return Stage(work, name, max_waiting=most)


def _plain(chain: Chain) -> list[dict[str, Any]]:
    return [
        _plain_stage(part) if isinstance(part, Stage) else {"each": _plain(part.chain)}
        for part in chain.parts
    ]


def _plain_stage(stage: Stage) -> dict[str, Any]:
    work: SimulatedStage = stage.work
    plain: dict[str, Any] = {"name": work.name, "base": work.base, "per_item": work.per_item}
    plain |= {"size": work.size, "window": work.window, "processes": work.processes}
    plain |= {"cv": work.cv, "max_waiting": stage.max_waiting, "largest": work.most}
    if work.widths != (1,):
        plain["width"] = list(work.widths) if len(work.widths) > 1 else work.widths[0]
    return plain
