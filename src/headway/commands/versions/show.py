"""Print versions on a terminal of 80 columns."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.live.clock import date
from headway.rollout.proposal import differences


def print_list(console: Console, found: Mapping[str, Any]) -> None:
    """Print a line for each version, and the trial if there is one."""
    table = Table(box=None, pad_edge=False)
    for name in ("number", "state", "author", "reason"):
        table.add_column(name, justify="right" if name == "number" else "left")
    for each in found["data"]:
        mark = " *" if each["number"] == found["in_force"] else ""
        row = f"{each['number']}{mark}", each["state"], each["author"], each["reason"]
        table.add_row(*[Text(text) for text in row])
    console.print(table)
    console.print("* in force now")
    if engines := found.get("engines"):
        console.print(", ".join(f"{name}: version {number}" for name, number in engines.items()))
    if trial := found["trial"]:
        console.print(
            f"\nVersion {trial['version']} is on trial against {trial['against']}: "
            f"{trial['pairs']} pairs of slices so far."
        )
        print_evidence(console, trial["evidence"])


def print_evidence(console: Console, evidence: list[Mapping[str, Any]]) -> None:
    """Print the evidence on each guardrail, and how much of it takes the version back."""
    table = Table(box=None, pad_edge=False)
    for name in ("guardrail", "lane", "evidence", "needed"):
        table.add_column(name, justify="left" if name in ("guardrail", "lane") else "right")
    for each in evidence:
        numbers = f"{each['evidence']:.1f}", f"{each['needed']:.1f}"
        table.add_row(each["figure"], each["lane"], *numbers)
    console.print(table)
    console.print("evidence and needed: logarithms of e-values; 0 says nothing")


def print_version(console: Console, version: Mapping[str, Any]) -> None:
    """Print everything known about a version."""
    console.print(f"Version {version['number']}: {version['state']}", style="bold")
    for line in _about(version):
        console.print(Text(line))
    sure = ""
    for event in version["events"]:
        why = f": {event['why']}" if event["why"] else ""
        console.print(Text(f"  {date(event['at'])}  {event['state']}, by {event['author']}{why}"))
        details = event["details"]
        if plan := details.get("plan"):
            sure = f"{100 * (1 - plan['alpha']):.12g} %"
        if measured := details.get("measured"):
            console.print(Text(f"    {_measured(measured, sure)}"))
        if verdict := details.get("verdict"):
            print_verdict(console, verdict, sure)


def _about(version: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {version['reason']} ({version['author']})"
    if expects := version["expects"]:
        change = f"{expects['change']:+.1%}"
        yield f"  expects: {expects['figure']} of lane {expects['lane']} {change}"
    if version["pressure"]:
        yield f"  pressure: {version['pressure']} (owner: {version['owner']})"


def _measured(measured: Mapping[str, Any], sure: str) -> str:
    expected = measured["expected"]
    found = measured["change"]
    told = "nothing could be measured" if found is None else f"measured {found:+.1%}"
    ends = [measured["low"], measured["high"]]
    if None not in ends:
        told += f" ({sure}: {ends[0]:+.1%} to {ends[1]:+.1%})"
    return f"{expected['figure']} of {expected['lane']}: expected {expected['change']:+.1%}, {told}"


def print_verdict(console: Console, verdict: Mapping[str, Any], sure: str) -> None:
    """Print a trial's figures: the candidate against the version in force. sure: how likely the
    intervals hold, in words: 1 less the trial's alpha."""
    table = Table(box=None, pad_edge=False)
    for name in (
        "guardrail",
        "lane",
        "change",
        f"{sure} at any time",
        "pairs",
        "e-value",
        "needed",
    ):
        table.add_column(name, justify="left" if name in ("guardrail", "lane") else "right")
    for each in verdict["evidence"]:
        change = "-" if each["change"] is None else f"{each['change']:+.1%}"
        ends = [each["low"], each["high"]]
        span = "-" if None in ends else f"{ends[0]:+.0%} to {ends[1]:+.0%}"
        numbers = f"{each['e_value']:.3g}", f"{each['needed']:.0f}"
        where = each["figure"], each["lane"]
        table.add_row(*where, change, span, str(each["pairs"]), *numbers)
    console.print(table)


def print_differences(console: Console, first: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Print each setting in which two versions differ."""
    found = differences(first["config"], other["config"])
    for path, before, after in found:
        console.print(Text(f"{path}: {before} -> {after}"))
    if not found:
        console.print("They are the same.")
