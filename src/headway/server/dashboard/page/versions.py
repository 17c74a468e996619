"""The page's section on versions of the configuration and the trial, from GET /v1/versions."""

from collections.abc import Mapping
from html import escape
from math import exp
from typing import Any

from headway.server.dashboard.page.html_table import Html, table

SHOWN = 8  # versions, the latest first
LEAST = 99.0  # natural logarithm of the largest E-value that is shown; exp cannot overflow
HEAD = (("Version", ""), ("State", ""), ("Author", ""), ("Reason", ""), ("Latest change", ""))
TRIAL = (
    ("Guardrail", ""),
    ("Lane", ""),
    ("E-value", "Evidence that it has become worse"),
    ("Trips at", ""),
)


def versions_section(told: Mapping[str, Any] | None) -> Html:
    """The section, empty if there are no versions. told: the answer of /v1/versions."""
    if not told or not told["data"]:
        return Html("")
    model, number, promoted = told["model"], told["in_force"], told["promoted"]
    force = f"Of {model} version {number} is in force; version {promoted} is promoted."
    return Html(
        f'<section id="versions"><h2>Versions</h2><p class="note">{escape(force)}</p>'
        f"{_trial(told['trial'])}{_list(told)}</section>"
    )


def _list(told: Mapping[str, Any]) -> Html:
    latest = sorted(told["data"], key=lambda each: -int(each["number"]))[:SHOWN]
    rows = [
        (
            f"version-{each['number']}",
            [str(each["number"]), str(each["state"]), *_texts(each, "author", "reason", "why")],
        )
        for each in latest
    ]
    return table("versions-list", "Versions of the configuration", HEAD, rows, words=5)


def _texts(each: Mapping[str, Any], *names: str) -> list[str]:
    return [str(each[name] or "-") for name in names]


def _trial(trial: Mapping[str, Any] | None) -> Html:
    if not trial:
        return Html('<p class="note">No trial runs.</p>')
    about = (
        f"Version {trial['version']} is on trial against version {trial['against']}: "
        f"{trial['pairs']} pairs of time slices so far."
    )
    rows = [
        (
            "",
            [each["figure"], each["lane"], _e_value(each["evidence"]), _e_value(each["needed"])],
        )
        for each in trial["evidence"]
    ]
    shown = table("trial", "Guardrails of the trial", TRIAL, rows, words=2) if rows else ""
    return Html(f"<p>{escape(about)}</p>{shown}")


def _e_value(logarithm: float) -> str:
    return f"{exp(min(logarithm, LEAST)):.3g}"
