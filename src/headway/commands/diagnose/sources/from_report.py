"""Evidence from a report.json: rows, without the settings of the run."""

from dataclasses import replace

from headway.commands.diagnose.evidence import Evidence
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.figures.warm_up import without_warm_up
from headway.report.report_json import Report


def report_evidence(report: Report, strategy: str, name: str) -> Evidence:
    """The evidence of one strategy's first run.

    strategy: its name; empty: the only one. name: the file's, for people. Raises SettingError if
    there is no such strategy, or there are several and none is named.
    """
    names = list(report.outcomes)
    if not names:
        raise SettingError(f"{name} has no run")
    if not strategy and len(names) > 1:
        raise SettingError(
            f"{name} has {len(names)} runs, name one with --strategy: {', '.join(names)}"
        )
    strategy = strategy or names[0]
    if strategy not in report.outcomes:
        raise SettingError(f"{name} has no run {strategy!r}; there are {', '.join(names)}")
    outcome = without_warm_up(report.outcomes[strategy], report.warm_up)
    return Evidence(
        source=f"{name}, {strategy}: {len(outcome.requests)} requests, {len(outcome.steps)} steps",
        requests=outcome.requests,
        lanes={  # a report does not say how many may wait
            lane: replace(each, max_waiting=NEVER) for lane, each in report.lanes.items()
        },
        steps=outcome.steps,
        unfinished=0 if outcome.complete else sum(outcome.offered.values()) - len(outcome.requests),
    )
