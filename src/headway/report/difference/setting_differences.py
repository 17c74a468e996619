"""How the settings of two reports' runs differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.report.analysis import Analysis
from headway.report.formatting import figures
from headway.report.remote import client_description
from headway.report.run_description import BEYOND, stated

# Facts stated in other words here, measured anew in each run, or not about a run.
LEFT_OUT = ("Offered load", "Enforced", "Disturbed", "Baseline", BEYOND)
NOT_STATED = "not stated"


def setting_differences(
    first: Analysis,
    second: Analysis,
    titles: tuple[str, str],
    names: Sequence[tuple[str, str]],
) -> list[str]:
    """A sentence for each setting that differs and so may explain a difference in the figures.

    names: the compared strategies or servers, as the first and the second report name them.
    """
    said = _differences(settings(first), settings(second), titles)
    for pair in names:
        title = pair[0] if pair[0] == pair[1] else " / ".join(pair)
        one, other = described(first, pair[0]), described(second, pair[1])
        said += _differences({title: one[0]}, {title: other[0]}, titles)
        if one[0] == other[0] and one[1] != other[1]:
            said.append(f"The policies of {title} differ.")
    lanes, others = first.report.lanes, second.report.lanes
    for lane in lanes:
        if lane in others and lanes[lane] != others[lane]:
            said.append(f"The budget of {lane} differs; each share is of its own budget.")
    return said


def settings(found: Analysis) -> dict[str, str]:
    """The report's facts, but not those of one strategy or server. KeyError: one is missing."""
    about, work = found.report.about, found.report.about["workload"]
    facts = {
        "Command": str(about.get("command", NOT_STATED)),
        "headway": str(about.get("headway", NOT_STATED)),
        "Simulated": "yes" if "simulated" in about else "no",
        "Rate": (
            f"{figures(work['requests_per_second'], 4)} requests / s, {work['requests']:,} in all"
        ),
        "Limits enforced": "yes" if about.get("enforced") else "no",
    }
    if found.is_remote:
        facts["Model"] = str(about["model"]["name"])
    for name, text in client_description.stated(found) if found.is_remote else stated(found):
        if name not in LEFT_OUT and not name.startswith("Server "):
            facts[name] = f"{facts[name]}; {text}" if name in facts else text
    return facts


def described(found: Analysis, name: str) -> tuple[str, Any]:
    """A strategy's rule and policies, or how a server was asked. KeyError: a fact is missing."""
    about = found.report.about
    if found.is_remote:
        servers = {each["name"]: each for each in about["servers"]}
        return client_description.server_text(servers[name]), None
    rules = {each["name"]: each for each in about.get("rules", ())}
    mine = rules.get(name, {})
    return str(mine.get("rule", NOT_STATED)), mine.get("policies")


def _differences(
    first: Mapping[str, str], second: Mapping[str, str], titles: tuple[str, str]
) -> list[str]:
    """A sentence per fact that differs, in the first report's order, then the second's."""
    pairs = {
        name: (first.get(name, NOT_STATED), second.get(name, NOT_STATED))
        for name in (*first, *second)
    }
    return [
        f"{name} in {titles[0]}: {one}; in {titles[1]}: {other}."
        for name, (one, other) in pairs.items()
        if one != other
    ]
