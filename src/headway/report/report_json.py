"""report.json: what was offered, the resulting figures, and the raw rows behind them."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
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
from headway.report.row_table import mapping, read_rows, row_table
from headway.runs.outcome import Outcome
from headway.runs.remote.client_row import ClientRow
from headway.yaml_values import known

VERSION = 1
OWN = ("headway_report", "complete", "strategies", "budgets")  # keys that are not `about`
REQUEST = [name for name in RequestRow.__slots__ if name != "budget"]  # `budgets` has it by lane
STEP = list(StepRow._fields)
CLIENT = list(ClientRow._fields)
CHANGE = list(SizeChange.__slots__)


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of report.json. `about` holds the facts that all runs share."""

    about: Mapping[str, Any]
    lanes: Mapping[str, Lane]
    runs: Mapping[str, tuple[Outcome, ...]]  # the repeats, by strategy in the order they ran

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """The first run of each strategy."""
        return {name: repeats[0] for name, repeats in self.runs.items()}

    @property
    def warm_up(self) -> int:
        """The warm-up, in nanoseconds from the run's beginning; the figures leave it out."""
        return int(self.about.get("workload", {}).get("warm_up_ns", 0))


class Described(Protocol):
    """What a run measures: a strategy or a server."""

    @property
    def name(self) -> str: ...

    @property
    def rule(self) -> str:
        """The rule in one sentence."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]: ...


def write(
    report: Report, strategies: Iterable[Described], cards: Mapping[str, PressureCard], path: Path
) -> None:
    """Write report.json atomically. Times are integer nanoseconds from the run's beginning.

    In rows, null is a time that did not come. In budgets and figures, "never" is a missing limit
    or a percentile not reached within the run, and null is a percentile of too few requests.
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
    write_whole(path, json.dumps(plain, separators=(",", ":")) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write the file atomically: an existing one is replaced once the new text is complete."""
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def plain_point(point: RatePoint) -> dict[str, Any]:
    """A rate point as JSON has it, with times as in a run's latency."""
    return asdict(point) | {"lanes": {n: _nulled(asdict(each)) for n, each in point.lanes.items()}}


def writable(folder: Path) -> Path:
    """Return the folder, created if needed. Raise SettingError if a report cannot be written to
    it, before minutes are spent on runs."""
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
        "requests": row_table(REQUEST, outcome.requests),
        "steps": row_table(STEP, outcome.steps),
        **({"client": row_table(CLIENT, outcome.client)} if outcome.client else {}),
        **({"size_changes": row_table(CHANGE, outcome.changes)} if outcome.changes else {}),
    }


def _nulled(named: dict[str, Any]) -> dict[str, Any]:
    return {name: "never" if value == NEVER else value for name, value in named.items()}


def read(path: Path) -> Report:
    """Read a report, with the rows as they were written. Raise SettingError if it is not one."""
    try:
        plain = mapping(json.loads(path.read_text(encoding="utf-8")), "the file")
        version = plain["headway_report"]
        report = _report(plain) if version == VERSION else None
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
        if isinstance(error, json.JSONDecodeError):
            said = f"it is not JSON: {said}"
        raise SettingError(f"{path} cannot be read as a report: {said}") from error
    if report is None:
        raise SettingError(
            f"{path} is a report of version {version}, and this headway reads "
            f"version {VERSION}: make it again"
        )
    return report


def _report(plain: Mapping[str, Any]) -> Report:
    lanes = {
        name: Lane(name, _budget(mapping(limits, f"budgets: {name}"), f"budgets: {name}"))
        for name, limits in mapping(plain["budgets"], "budgets").items()
    }
    if not isinstance(plain["strategies"], list):
        raise SettingError(f"strategies: a list is wanted, not {_type(plain['strategies'])}")
    runs = dict[str, tuple[Outcome, ...]]()
    for number, each in enumerate(plain["strategies"]):
        name = mapping(each, f"strategies: number {number}")["name"]
        if not isinstance(name, str):
            raise SettingError(f"strategies: number {number}: a name is wanted, not {_type(name)}")
        runs[name] = (*runs.get(name, ()), _outcome_of(each, lanes, f"strategies: {name}"))
    about = {k: v for k, v in plain.items() if k not in OWN}
    work = mapping(plain.get("workload", {}), "workload")
    _whole(work.get("warm_up_ns", 0), "workload: warm_up_ns")
    return Report(about, lanes, runs)


def _budget(limits: Mapping[str, Any], where: str) -> Budget:
    known(limits, list(Budget.__slots__), where)
    return Budget(
        **{
            name: NEVER if limit in (None, "never") else _whole(limit, f"{where}: {name}")
            for name, limit in limits.items()
        }
    )


def _outcome_of(plain: Mapping[str, Any], lanes: Mapping[str, Lane], where: str) -> Outcome:
    def rows(kind: type, name: str, given: Collection[str] = ()) -> list[dict[str, Any]]:
        return read_rows(kind, plain[name], f"{where}: {name}", given)

    if not isinstance(plain["complete"], bool):
        raise SettingError(f"{where}: complete is true or false, not {_type(plain['complete'])}")
    return Outcome(
        offered={
            lane: _whole(count, f"{where}: offered: {lane}")
            for lane, count in mapping(plain["offered"], f"{where}: offered").items()
        },
        requests=tuple(
            RequestRow(
                **each | {"budget": lanes[each["lane"]].budget, "finish": Finish(each["finish"])}
            )
            for each in rows(RequestRow, "requests", ("budget",))
        ),
        steps=tuple(StepRow(**each) for each in rows(StepRow, "steps")),
        nanoseconds=_whole(plain["nanoseconds"], f"{where}: nanoseconds"),
        complete=plain["complete"],
        client=tuple(
            ClientRow(**each | {"gaps": tuple(each["gaps"])})
            for each in (rows(ClientRow, "client") if "client" in plain else ())
        ),
        changes=tuple(
            SizeChange(**each)
            for each in (rows(SizeChange, "size_changes") if "size_changes" in plain else ())
        ),
    )


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SettingError(f"{where}: a whole number from 0 on is wanted, not {repr(value)[:40]}")
    return value


def _type(value: Any) -> str:
    return type(value).__name__
