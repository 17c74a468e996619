"""`headway replay`: repeat a recorded run row for row, or simulate it under other settings."""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from headway.commands.replay.change import Change, parse_change
from headway.commands.replay.recording import Recording, load
from headway.commands.replay.replay_report import (
    CONTROL,
    RECORDED,
    WHAT_IF,
    ReplayedRun,
    ReplayReport,
)
from headway.commands.replay.rerun import rerun_journal
from headway.commands.replay.what_if import what_if
from headway.core.cost.gathering import UNPADDED
from headway.costing import calibration
from headway.costing.calibration import Calibration
from headway.errors import SettingError
from headway.report.report_json import writable


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The command line's options."""

    journal: Path
    cost: Path | None = None  # a cost file, to show its predicted times too
    strategy: str = ""  # a name, or a YAML file with one strategy; empty: the recorded one
    sets: tuple[str, ...] = ()  # key=value
    as_json: bool = False
    out: Path | None = None  # folder for report.json, with every row; None: no report


def run_replay(options: ReplayOptions, console: Console) -> int:
    """Run the command; return the exit status. Raises HeadwayError for errors the user can fix."""
    changed = parse_change(options.strategy, options.sets)
    if changed != Change() and options.cost is None:
        raise SettingError(
            "a what-if run needs predicted step times: add --cost cost.json, which headway "
            "calibrate writes"
        )
    recording = load(options.journal)
    priced = None if options.cost is None else _cost_file(options.cost, recording)
    folder = None if options.out is None else writable(options.out)
    report = _make_report(recording, priced, changed)
    if options.as_json:
        console.file.write(json.dumps(report.as_json) + "\n")
    else:
        report.print(console)
    if folder is not None:
        report.write(folder / "report.json")
        if not options.as_json:
            console.print(f"Every request and step is a row of {folder / 'report.json'}.")
    return 0


def _cost_file(path: Path, recording: Recording) -> Calibration:
    """Read the cost file. Raises SettingError if it is for another model than the journal's."""
    found, about = calibration.read_cost_file(path), recording.about
    if "model" in about:
        found.check_model(
            str(about["model"]), str(about.get("dtype", "")), str(about.get("executor", ""))
        )
    return found


def _make_report(recording: Recording, priced: Calibration | None, changed: Change) -> ReplayReport:
    """The run as recorded, as priced by the cost model, and with the changed settings."""
    rerun = rerun_journal(recording, priced.cost.gathering if priced else UNPADDED)
    runs = {RECORDED: ReplayedRun(rerun.outcome, recording.settings)}
    if priced is not None:
        wanted = {CONTROL: recording.settings}
        if changed != Change():
            wanted[WHAT_IF] = changed.apply(rerun, priced.cost)
        for name, settings in wanted.items():
            again = what_if(rerun, settings, priced.cost)
            runs[name] = ReplayedRun(again.outcome, settings, len(again.ran_out))
    return ReplayReport(rerun, priced, changed, runs)
