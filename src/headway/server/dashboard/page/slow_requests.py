"""Slow requests, each with the stages that its time went to."""

import json
from collections.abc import Mapping, Sequence
from html import escape

from headway.report.formatting import NOT_SAID, duration, share
from headway.server.dashboard.page.html_table import Html, html, table
from headway.server.dashboard.page.times import clock_time
from headway.server.dashboard.view import View
from headway.server.ledger.explanation import words_of
from headway.server.ledger.rows.request_rows import Row

WIDE, TALL = 1_000, 16  # of the bar; stretched to the page's width
KINDS = (  # a stage's colour, by how its name begins
    ("queue", "k-padding"),
    ("prefill.own", "k-prompt"),
    ("decode.own", "k-decode"),
    ("prefill.others", "k-prompt faint"),
    ("decode.others", "k-decode faint"),
    ("preempted", "k-held"),
    ("lost", "k-held"),
)
LEGEND = (
    ("k-padding", "waited"),
    ("k-prompt", "prompt: its own share"),
    ("k-prompt faint", "prompt: others' shares"),
    ("k-decode", "generating: its own share"),
    ("k-decode faint", "generating: others' shares"),
    ("k-held", "preempted or lost"),
    ("k-rest", "all else"),
)
HEAD = (("Stage", ""), ("Time", ""), ("Share", ""), ("What happened", ""))


def slow_requests(view: View) -> Html:
    """The slow requests as a list; each entry opens to its explanation."""
    if not view.slow:
        return Html('<p class="note">None of your requests has ended yet.</p>')
    if view.are_late:
        what = f"The latest outside their budget, of {view.remembered} that ended last."
    else:
        what = f"None of the {view.remembered} that ended last was outside its budget. The slowest:"
    key = "".join(f'<span class="{kind}"><i></i>{word}</span>' for kind, word in LEGEND)
    rows = "".join(_request(row) for row in view.slow)
    return Html(
        f'<p class="note">{what} Your own requests only; open one to see where its time went.</p>'
        f'<p class="key">{key}</p><div class="slow">{rows}</div>'
    )


def _request(row: Row) -> str:
    stages: Mapping[str, int] = json.loads(row["stages"])
    ttft = NOT_SAID if row["ttft_ns"] is None else duration(row["ttft_ns"])
    return (
        f'<details id="slow-{escape(row["id"])}"><summary><span>'
        f"<time>{clock_time(row['arrived'])}</time> <b>{escape(row['lane'])}</b> "
        f"{duration(row['wall_ns'])}, TTFT {ttft}, {escape(_end(row))}</span>"
        f"{bar(stages, row['wall_ns'])}</summary>{_explained(row, stages)}</details>"
    )


def _end(row: Row) -> str:
    if row["code"]:
        return str(row["code"])
    return "in budget" if row["good"] else f"late ({row['finish']})"


def bar(stages: Mapping[str, int], wall: int) -> Html:
    """A bar of the stages side by side, each as wide as its share of `wall` (nanoseconds)."""
    label = ", ".join(f"{name} {duration(ns)}" for name, ns in _largest(stages)[:3])
    drawn, passed = "", 0
    for name, spent in stages.items():
        left, right = WIDE * passed / max(1, wall), WIDE * (passed + spent) / max(1, wall)
        passed += spent
        if right > left:
            drawn += (
                f'<rect class="{_kind(name)}" x="{left:.2f}" y="0" width="{right - left:.2f}" '
                f'height="{TALL}"><title>{escape(name)} {duration(spent)}</title></rect>'
            )
    return Html(
        f'<svg class="bar" viewBox="0 0 {WIDE} {TALL}" preserveAspectRatio="none" role="img" '
        f'aria-label="mostly {escape(label)}">{drawn}</svg>'
    )


def _largest(stages: Mapping[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(stages.items(), key=lambda stage: -stage[1])


def _kind(stage: str) -> str:
    return next((kind for name, kind in KINDS if stage.startswith(name)), "k-rest")


def _explained(row: Row, stages: Mapping[str, int]) -> str:
    wall, words = max(1, row["wall_ns"]), words_of(row["operation"])
    rows = [
        ("", [name, duration(spent), share(spent / wall), words.get(name, "")])
        for name, spent in stages.items()
    ]
    total = sum(stages.values())
    rows.append(
        ("", ["Sum", duration(total), share(total / wall), "from its receipt to its last byte"])
    )
    id = escape(row["id"])
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{html(text)}</dd></div>" for name, text in _facts(row)
    )
    shown = table(f"stages-{row['id']}", f"Stages of {row['id']}", HEAD, rows, words=1)
    return f'<dl class="figures"><div><dt>Request</dt><dd>{id}</dd></div>{facts}</dl>{shown}'


def _facts(row: Row) -> list[tuple[str, str]]:
    facts = [("X-Request-Id", row["request_id"])] if row["request_id"] else []
    facts += [
        ("Tokens", f"{row['fresh_tokens']} of the prompt computed, {row['cached_tokens']} cached, "
         f"{row['output_tokens']} generated"),
        ("Preempted", f"{row['preemptions']} times" if row["preemptions"] else "never"),
    ]  # fmt: skip
    ran: list[tuple[str, int, int]] = json.loads(row["ran_before"])
    if ran:
        told = ", ".join(f"{lane}: {rows} rows, {tokens} tokens" for lane, rows, tokens in ran)
        facts.append(("Ran while it waited", told))
    promised = row["promised_first_ns"]
    if promised is not None:
        facts.append(("First token promised", duration(promised)))
    return facts
