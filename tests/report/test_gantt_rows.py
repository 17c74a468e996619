"""The rows that the page's Gantt chart draws, and their form in its JSON."""

import json
from dataclasses import replace

import pytest

from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.page import gantt, gantt_rows
from headway.report.page.gantt_rows import Stretch, drawn_stretch, gantt_json, steps_together
from tests.commands.small_comparison import compared


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gantt")
    assert compared(folder, strategies="static,continuous-chunk-64")[0] == 0
    return Analysis(report_json.read(folder / "report.json"))


def drawn(found):
    stretch = drawn_stretch(found)
    return json.loads(gantt_json(found, stretch, steps_together(found, stretch)))


def test_all_rows_are_drawn_with_their_times_from_the_arrival(found):
    plain = drawn(found)
    for run in plain["runs"]:
        rows = {row.id: row for row in found.report.runs[run["name"]][0].requests}
        assert [r[3] for r in run["requests"]] == sorted(r[3] for r in run["requests"])
        assert {r[0] for r in run["requests"]} == set(rows)
        for each in run["requests"]:
            named, row = dict(zip(plain["columns"], each, strict=True)), rows[each[0]]
            assert found.lanes[named["lane"]] == row.lane and named["good"] == row.good
            assert named["finished"] == row.e2e // 1_000
            assert (
                named["first"] == row.ttft // 1_000 and named["device"] == row.nanoseconds // 1_000
            )


def test_the_times_of_the_steps_follow_from_their_gaps(found):
    for run in drawn(found)["runs"]:
        steps, at = found.report.runs[run["name"]][0].steps, 0
        marks = run["steps"]
        assert "span" not in marks and len(marks["gap"]) == len(steps)
        for gap, busy, rows, step in zip(
            marks["gap"], marks["busy"], marks["rows"], steps, strict=True
        ):
            assert at + gap == step.began // 1_000 and rows == step.rows
            at += gap + busy
            assert at == (step.began + step.nanoseconds) // 1_000


def test_of_too_many_requests_the_stretch_with_most_misses_is_drawn(found, monkeypatch):
    rows = [
        (row.arrived, not row.good)
        for name in found.strategies
        for row in found.report.runs[name][0].requests
    ]
    monkeypatch.setattr(gantt_rows, "MOST_REQUESTS", len(rows) // 3)
    stretch = drawn_stretch(found)
    inside = [missed for at, missed in rows if stretch.begin <= at <= stretch.end]
    assert len(inside) == stretch.drawn <= len(rows) // 3 and stretch.of == len(rows)
    every = sorted(rows)
    most = max(
        sum(missed for _, missed in every[k : k + len(rows) // 3])
        for k in range(len(rows) - len(rows) // 3)
    )
    together = sum(at in (stretch.begin, stretch.end) for at, _ in rows)
    assert most - together - 2 <= sum(inside) <= most
    said = gantt.bounded(found, stretch, 1)
    assert said.startswith(f"Drawn are {stretch.drawn:,} of {len(rows):,} requests")
    assert "leaves out those that arrived before or after" in said
    assert gantt.bounded(found, replace(stretch, drawn=stretch.of), 1) == ""


def test_the_step_under_way_at_the_first_arrival_of_a_stretch_is_drawn(found):
    outcome = found.report.runs["static"][0]
    step = outcome.steps[len(outcome.steps) // 2]
    last = max(row.arrived for row in outcome.requests)
    for begin, first in (
        (step.began + 1_000, step.began),
        (step.began + step.nanoseconds, step.began + step.nanoseconds),
    ):
        arrived = [row for row in outcome.requests if begin <= row.arrived <= last]
        stretch = Stretch(begin, last, len(arrived), len(outcome.requests) + 1)
        run = json.loads(gantt_json(found, stretch, 1))["runs"][0]
        end = max(row.finished for row in arrived)
        inside = [each for each in outcome.steps if first <= each.began <= end]
        assert run["steps"]["gap"][0] == inside[0].began // 1_000
        assert len(run["steps"]["gap"]) == len(inside)


def test_several_steps_share_one_mark_if_there_are_too_many(found, monkeypatch):
    runs = [found.report.runs[name][0] for name in found.strategies]
    count = sum(len(run.steps) for run in runs)
    monkeypatch.setattr(gantt_rows, "MOST_STEPS", count // 5)
    plain = drawn(found)
    assert plain["together"] == 6
    for run, outcome in zip(plain["runs"], runs, strict=True):
        marks = run["steps"]
        assert len(marks["gap"]) == -(-len(outcome.steps) // 6)
        assert sum(marks["decode"]) == sum(step.decodes for step in outcome.steps)
        assert sum(marks["waste"]) == sum(step.waste_tokens for step in outcome.steps)
        last = outcome.steps[-1]
        end = (last.began + last.nanoseconds) // 1_000
        assert sum(marks["gap"]) + sum(marks["span"]) == end
        assert all(a <= b for a, b in zip(marks["busy"], marks["span"], strict=True))
    assert "A mark of the strip is 6 steps" in gantt.bounded(found, drawn_stretch(found), 6)


def test_a_script_tag_in_a_name_is_escaped(found):
    rows = [replace(row, id=f"</script>{row.id}") for row in found.first("static").requests]
    runs = {"static": (replace(found.report.runs["static"][0], requests=tuple(rows)),)}
    changed = Analysis(report_json.Report(found.report.about, found.report.lanes, runs))
    text = gantt_json(changed, drawn_stretch(changed), 1)
    assert "<" not in text
    assert json.loads(text)["runs"][0]["requests"][0][0].startswith("</script>")
