"""`headway replay`: a recorded run again, row for row; and what it would have been otherwise."""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from headway.commands.demo import writable
from headway.commands.replay.change import Change, change
from headway.commands.replay.recording import Recording, load
from headway.commands.replay.replay_report import CONTROL, RECORDED, WHAT_IF, Retelling, Told
from headway.commands.replay.rerun import relive
from headway.commands.replay.what_if import what_if
from headway.core.cost.gathering import UNPADDED
from headway.costing import calibration
from headway.costing.calibration import Calibration
from headway.errors import SettingError


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line's wishes."""

    journal: Path
    cost: Path | None = None  # a cost file: beside the measured times, its predictions
    strategy: str = ""  # a name, or a YAML file with one strategy; empty: the recorded one
    sets: tuple[str, ...] = ()  # key=value
    as_json: bool = False
    out: Path | None = None  # folder for report.json, with every row; None: no report


def run_replay(asked: Asked, console: Console) -> int:
    """The exit status. Raises a HeadwayError for what the user can mend."""
    changed = change(asked.strategy, asked.sets)
    if changed != Change() and asked.cost is None:
        raise SettingError(
            "what if: nobody has measured the steps that would have been run, so say --cost "
            "cost.json too; headway calibrate makes one"
        )
    recording = load(asked.journal)
    priced = None if asked.cost is None else _cost_file(asked.cost, recording)
    folder = None if asked.out is None else writable(asked.out)
    told = _told(recording, priced, changed)
    if asked.as_json:
        console.file.write(json.dumps(told.plain) + "\n")
    else:
        told.print(console)
    if folder is not None:
        told.write(folder / "report.json")
        if not asked.as_json:
            console.print(f"Every request and step is a row of {folder / 'report.json'}.")
    return 0


def _cost_file(path: Path, recording: Recording) -> Calibration:
    """SettingError if it is of another model than the journal."""
    found, about = calibration.read(path), recording.about
    if "model" in about:
        found.check_model(str(about["model"]), str(about.get("dtype", "")))
    return found


def _told(recording: Recording, priced: Calibration | None, changed: Change) -> Retelling:
    """As recorded; as the cost model has the same settings; as it has the changed ones."""
    relived = relive(recording, priced.cost.gathering if priced else UNPADDED)
    runs = {RECORDED: Told(relived.outcome, recording.settings)}
    if priced is not None:
        wanted = {CONTROL: recording.settings}
        if changed != Change():
            wanted[WHAT_IF] = changed.of(relived, priced.cost)
        for name, settings in wanted.items():
            again = what_if(relived, settings, priced.cost)
            runs[name] = Told(again.outcome, settings, len(again.ran_out))
    return Retelling(relived, priced, changed, runs)
