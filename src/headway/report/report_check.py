"""Check that a report read from a file has the facts that its page and its differences need."""

from collections.abc import Mapping
from typing import Any

from headway.errors import SettingError
from headway.report.report_json import Report
from headway.report.row_table import mapping

ENDPOINT = {"name": str, "serves": str, "source": str, "offered": int}


def check(report: Report) -> None:
    """Raise SettingError that names a missing fact, or one of the wrong type."""
    if not report.runs:
        raise SettingError("strategies: there is none")
    work = mapping(_stated(report.about, "workload"), "workload")
    for name in ("window_ns", "warm_up_ns"):
        _typed(_stated(work, name, "workload: "), int, f"workload: {name}")
    model = mapping(_stated(report.about, "model"), "model")
    _typed(_stated(model, "name", "model: "), str, "model: name")
    endpoints = _stated(report.about, "endpoints")
    _typed(endpoints, list, "endpoints")
    for number, each in enumerate(endpoints):
        where = f"endpoints: number {number}"
        for name, kind in ENDPOINT.items():
            _typed(_stated(mapping(each, where), name, f"{where}: "), kind, f"{where}: {name}")
        if each["name"] not in report.lanes:
            raise SettingError(f"{where}: {each['name']} has no budget")
    _check_lanes(report)


def _check_lanes(report: Report) -> None:
    """Check that each run states, for each lane, how many requests were offered."""
    for name, runs in report.runs.items():
        for lane in report.lanes:
            if any(lane not in run.offered for run in runs):
                raise SettingError(f"strategies: {name}: offered: {lane} is missing")


def _stated(plain: Mapping[str, Any], name: str, where: str = "") -> Any:
    if name not in plain:
        raise SettingError(f"{where}{name} is missing")
    return plain[name]


def _typed(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise SettingError(f"{where}: {kind.__name__} is wanted, not {type(value).__name__}")
