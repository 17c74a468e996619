"""`headway diagnose`: find the likely cause of missed limits, in a journal, a report, a ledger or
a live server."""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from headway.commands.diagnose.diagnosis import Diagnosis, diagnose
from headway.commands.diagnose.diagnosis_report import DiagnosisReport
from headway.commands.diagnose.evidence import Evidence
from headway.commands.diagnose.replayed import NO_JOURNAL, Replayed, replayed
from headway.commands.diagnose.sources.from_journal import journal_evidence
from headway.commands.diagnose.sources.from_report import report_evidence
from headway.commands.diagnose.sources.from_server import read_server, server_diagnosis
from headway.commands.diagnose.step_times import step_times
from headway.commands.replay.recording import load
from headway.commands.replay.rerun import Rerun
from headway.core.cost.step_cost import StepCost
from headway.costing.calibration import read_cost_file
from headway.errors import SettingError
from headway.report import report_json
from headway.yaml_values import number

FINE, HURTS = 0, 1  # exit statuses
MINUTES = 60.0  # how much of a ledger is read by default


@dataclass(frozen=True, slots=True)
class DiagnoseOptions:
    """The command line's options. Exactly one source must be given."""

    journal: Path | None = None
    report: Path | None = None
    ledger: str = ""  # a store
    minutes: float | None = None  # of a ledger: how far back from its latest request; None: MINUTES
    model: str = ""  # which model, if the ledger or the server has several
    config: Path | None = None  # the configuration of the server that wrote the ledger
    url: str = ""  # of a live server
    key: str = ""  # an API key for that server
    seconds: float = 10.0  # between the two looks at a live server
    cost: Path | None = None  # a cost file: how long steps should take
    strategy: str = ""  # which run, if the report has several
    as_json: bool = False


def run_diagnose(options: DiagnoseOptions, console: Console) -> int:
    """Run the command; returns the exit status. Raises HeadwayError for what the user can fix."""
    given = (options.journal, options.report, options.ledger, options.url)
    if sum(map(bool, given)) != 1:
        raise SettingError(
            "name one source: --journal FILE, --report report.json, --ledger STORE or --url URL"
        )
    if options.cost and not (options.journal or options.ledger):
        raise SettingError("--cost goes with --journal or --ledger")
    if (options.config or options.minutes) and not options.ledger:
        raise SettingError("--config and --minutes go with --ledger")
    if options.model and not (options.ledger or options.url):
        raise SettingError("--model goes with --ledger or --url")
    if options.strategy and not options.report:
        raise SettingError("--strategy names a run of a --report")
    if options.journal:
        report = _of_journal(options.journal, options.cost)
    elif options.report:
        name = options.report.name
        evidence = report_evidence(report_json.read(options.report), options.strategy, name)
        report = DiagnosisReport(diagnose(evidence), NO_JOURNAL.format(source="a report"))
    elif options.ledger:
        evidence = _of_ledger(options)
        report = DiagnosisReport(diagnose(evidence), NO_JOURNAL.format(source="a ledger"))
    else:
        looks = read_server(options.url, options.key, options.seconds, options.model)
        named = f"{options.url}, {options.model}" if options.model else options.url
        report = DiagnosisReport(
            server_diagnosis(*looks, source=named), NO_JOURNAL.format(source="a live server")
        )
    if options.as_json:
        console.file.write(json.dumps(report.as_json) + "\n")
    else:
        report.print(console)
    return HURTS if report.diagnosis.hurts else FINE


def _of_ledger(options: DiagnoseOptions) -> Evidence:
    try:
        from headway.commands.diagnose.sources.ledger_read import read_ledger
    except ModuleNotFoundError as missing:
        raise SettingError(
            f"reading a ledger needs {missing.name}: pip install 'headway[server,ledger]'"
        ) from missing
    minutes = number(options.minutes or MINUTES, "--minutes")
    return read_ledger(options.ledger, minutes, options.model, options.config, options.cost)


def _of_journal(path: Path, cost_file: Path | None) -> DiagnosisReport:
    recording, cost = load(path), StepCost()
    if cost_file:
        calibration = read_cost_file(cost_file)
        if model := recording.about.get("model"):
            calibration.check_model(str(model), str(recording.about.get("dtype", "")))
        cost = calibration.cost
    evidence, rerun = journal_evidence(recording, cost)
    found = diagnose(evidence)
    return DiagnosisReport(found, _trial(found, evidence, rerun))


def _trial(found: Diagnosis, evidence: Evidence, rerun: Rerun) -> Replayed | str:
    if not found.findings:
        return "not asked: there is no change to try"
    trial = found.findings[0].trial
    if evidence.cost.is_known:
        return replayed(trial, rerun, evidence.cost, is_fitted=False)
    if not (times := step_times(evidence)):
        return "not possible by replay: there are too few steps to price others"
    return replayed(trial, rerun, times.cost, is_fitted=True)
