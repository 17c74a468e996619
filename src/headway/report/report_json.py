"""report.json: what was offered, what came of it, and the raw rows from which all of it follows."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from headway.core.lane import Budget, Lane
from headway.core.ledger import RequestRow, SizeChange, StepRow
from headway.core.request import NEVER, Finish
from headway.errors import SettingError, first_line
from headway.figures.engine_figures import engine_figures
from headway.figures.lane_figures import lane_figures
from headway.figures.pressure import PressureCard
from headway.figures.promise_figures import promise_figures
from headway.figures.rate_point import RatePoint
from headway.figures.tenant_figures import tenant_figures
from headway.figures.warm_up import without_warm_up
from headway.report.formatting import pressed
from headway.runs.outcome import Outcome
from headway.runs.remote.client_row import ClientRow

VERSION = 1
OWN = ("headway_report", "complete", "strategies", "budgets")  # that are not `about`
REQUEST = [name for name in RequestRow.__slots__ if name != "budget"]  # the lane has it
STEP = list(StepRow._fields)
CLIENT = list(ClientRow._fields)
CHANGE = list(SizeChange.__slots__)


@dataclass(frozen=True, slots=True)
class Report:
    """As it is written; `about` is what holds for the whole run."""

    about: Mapping[str, Any]
    lanes: Mapping[str, Lane]
    runs: Mapping[str, tuple[Outcome, ...]]  # by strategy, in the order they ran; its repeats

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """The first of each strategy."""
        return {name: repeats[0] for name, repeats in self.runs.items()}

    @property
    def warm_up(self) -> int:
        """Nanoseconds at the beginning that the figures leave out."""
        return int(self.about.get("workload", {}).get("warm_up_ns", 0))


class Described(Protocol):
    """What a run is of: a strategy, or a server."""

    @property
    def name(self) -> str: ...

    @property
    def rule(self) -> str:
        """In a sentence."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]: ...


def write(
    report: Report, strategies: Iterable[Described], cards: Mapping[str, PressureCard], path: Path
) -> None:
    """Whole or not at all. Times are integers of nanoseconds from the run's beginning.

    In rows, null is a time that did not come. In budgets and figures that is "never" (a limit
    that there is not, a percentile not reached in the run), and null is a percentile not said.
    """
    named = {strategy.name: strategy for strategy in strategies}
    plain = {
        "headway_report": VERSION,
        "complete": all(each.complete for repeats in report.runs.values() for each in repeats),
        **report.about,
        "budgets": {name: _nulled(asdict(lane.budget)) for name, lane in report.lanes.items()},
        "strategies": [
            {
                "name": name,
                "repeat": repeat,
                "rule": named[name].rule,
                "policies": named[name].settings,
                **_outcome(outcome, report.warm_up),
                "pressure": pressed(cards[name]) if name in cards else None,
            }
            for name, repeats in report.runs.items()
            for repeat, outcome in enumerate(repeats)
        ],
    }
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(plain, separators=(",", ":")) + "\n", encoding="utf-8")
    beside.replace(path)


def plain_point(point: RatePoint) -> dict[str, Any]:
    """What a rate did, with times as in a run's latency."""
    return asdict(point) | {"lanes": {n: _nulled(asdict(each)) for n, each in point.lanes.items()}}


def writable(folder: Path) -> Path:
    """The folder, made if there is none. SettingError, before minutes are spent, where no report
    could be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.part").write_text("")
        (folder / "report.part").unlink()
    except OSError as error:
        message = f"the report cannot be written to {folder}: {error.strerror}"
        raise SettingError(message) from error
    return folder


def _outcome(outcome: Outcome, warm_up: int) -> dict[str, Any]:
    figured = without_warm_up(outcome, warm_up)
    lanes = {lane: lane_figures(figured, lane) for lane in outcome.offered}
    return {
        "complete": outcome.complete,
        "offered": outcome.offered,
        "nanoseconds": outcome.nanoseconds,
        "latency": {
            lane: _nulled(asdict(figures)) | {"attainment": figures.attainment}
            for lane, figures in lanes.items()
        },
        "tenants": {
            lane: {name: _nulled(asdict(each)) for name, each in tenants.items()}
            for lane in outcome.offered
            if (tenants := tenant_figures(figured, lane))
        },
        "promises": {
            lane: asdict(promised) | {"coverage": promised.coverage}
            for lane in outcome.offered
            if (promised := promise_figures(figured, lane))
        },
        "engine": engine_figures(figured).plain,
        "requests": _rows(REQUEST, outcome.requests),
        "steps": _rows(STEP, outcome.steps),
        **({"client": _rows(CLIENT, outcome.client)} if outcome.client else {}),
        **({"size_changes": _rows(CHANGE, outcome.changes)} if outcome.changes else {}),
    }


def _rows(
    columns: list[str], rows: Iterable[RequestRow | StepRow | ClientRow | SizeChange]
) -> dict[str, Any]:
    fields = attrgetter(*columns)
    return {"columns": columns, "rows": [[_null(each) for each in fields(row)] for row in rows]}


def _null(value: Any) -> Any:
    return None if value == NEVER else value


def _nulled(named: dict[str, Any]) -> dict[str, Any]:
    return {name: "never" if value == NEVER else value for name, value in named.items()}


def read(path: Path) -> Report:
    """The rows again, as the engine's ledger had them. SettingError if it is no report."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if plain["headway_report"] != VERSION:
            raise SettingError(
                f"{path} is a report of version {plain['headway_report']}, and this headway reads "
                f"version {VERSION}: make it again"
            )
        lanes = {
            name: Lane(name, Budget(**{k: _never(v) for k, v in budget.items()}))
            for name, budget in plain["budgets"].items()
        }
        runs = dict[str, tuple[Outcome, ...]]()
        for each in plain["strategies"]:
            runs[each["name"]] = (*runs.get(each["name"], ()), _made(each, lanes))
    except SettingError:
        raise
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
        raise SettingError(f"{path} cannot be read as a report: {said}") from error
    about = {k: v for k, v in plain.items() if k not in OWN}
    return Report(about, lanes, runs)


def _made(plain: Mapping[str, Any], lanes: Mapping[str, Lane]) -> Outcome:
    requests = []
    for row in plain["requests"]["rows"]:
        named = {k: _never(v) for k, v in zip(plain["requests"]["columns"], row, strict=True)}
        named["finish"] = Finish(named["finish"])
        requests.append(RequestRow(budget=lanes[named["lane"]].budget, **named))
    columns = plain["steps"]["columns"]
    steps = [StepRow(**dict(zip(columns, row, strict=True))) for row in plain["steps"]["rows"]]
    return Outcome(
        offered=plain["offered"],
        requests=tuple(requests),
        steps=tuple(steps),
        nanoseconds=plain["nanoseconds"],
        complete=plain["complete"],
        client=tuple(_client(row) for row in plain.get("client", {}).get("rows", ())),
        changes=tuple(
            SizeChange(**dict(zip(CHANGE, row, strict=True)))
            for row in plain.get("size_changes", {}).get("rows", ())
        ),
    )


def _client(row: list[Any]) -> ClientRow:
    named = dict(zip(CLIENT, row, strict=True))
    return ClientRow(**named | {"gaps": tuple(named["gaps"])})


def _never(value: Any) -> Any:
    return NEVER if value in (None, "never") else value
