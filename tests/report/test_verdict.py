"""The share that the verdict rests on, and the certainty that the verdict claims."""

from dataclasses import replace
from statistics import median_low

import pytest

from headway.core.request import NEVER
from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.formatting import milliseconds
from headway.report.page.page_tables import summary
from headway.report.verdict import MOST_FEW, caution, limited, standings, verdict
from headway.traffic.from_yaml import read_endpoints
from tests.commands.small_comparison import compared


@pytest.mark.evidence
@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_the_median_of_several_repeats_has_no_interval(tmp_path, repeats):
    wishes = {"strategies": "static,continuous-chunk-64", "repeat": repeats, "seconds": 40.0}
    assert compared(tmp_path, **wishes)[0] == 0
    found = Analysis(report_json.read(tmp_path / "report.json"))
    ranked = standings(found)
    assert len(ranked) == 2
    for each in ranked:
        runs = found.latency[each.strategy][each.lane]
        assert len(runs) == repeats
        assert each.attainment == median_low(run.attainment for run in runs)
        assert each.interval.is_empty is (repeats > 1)
    assert ("interval" in verdict(found)) is (repeats == 1)
    assert (f"n {ranked[0].offered:,}, the median of {repeats} repeats" in verdict(found)) is (
        repeats > 1
    )


def test_the_summary_of_two_repeats_shows_the_lower_of_their_times(tmp_path):
    assert compared(tmp_path, strategies="static", repeat=2, seconds=40.0)[0] == 0
    found = Analysis(report_json.read(tmp_path / "report.json"))
    for lane, (first, second) in found.latency["static"].items():
        found.latency["static"][lane] = [first, replace(second, ttft_p50=NEVER)]
    _, (head, (row,)) = summary(found, ["static"])
    times = [cell for name, cell in zip(head, row, strict=True) if name == "TTFT p50"]
    lanes = [found.latency["static"][lane][0] for lane in limited(found)]
    assert times == [milliseconds(each.ttft_p50) for each in lanes] and times


def test_of_many_endpoints_with_few_requests_those_with_the_fewest_are_named(tmp_path):
    lane = "{arrivals: poisson, prompt: 9, answer: 2, budget: {ttft: 500}, weight: %d}"
    text = "".join(f"lane-{number:02}: {lane % (1 + number)}\n" for number in range(12))
    (tmp_path / "lanes.yaml").write_text(text)
    services = read_endpoints(tmp_path / "lanes.yaml")
    assert compared(tmp_path, None, services, rate=9.0, strategies="static")[0] == 0
    found = Analysis(report_json.read(tmp_path / "report.json"))
    offered = found.first("static").offered
    lanes = limited(found)
    assert len(lanes) > MOST_FEW and max(offered.values()) < 100
    said = caution(found)
    named = [name for name in lanes if f"{name} {offered[name]}" in said]
    assert len(named) == MOST_FEW and f", and {len(lanes) - MOST_FEW} more endpoints): " in said
    rest = [offered[name] for name in lanes if name not in named]
    assert max(offered[name] for name in named) <= min(rest)


def test_of_two_strategies_that_keep_every_budget_both_do(tmp_path):
    (tmp_path / "lanes.yaml").write_text(
        "chat: {arrivals: poisson, prompt: 9, answer: 2, budget: {ttft: 9000}}"
    )
    services = read_endpoints(tmp_path / "lanes.yaml")
    names = "continuous-chunk-64,continuous-chunk-256"
    assert compared(tmp_path, None, services, rate=9.0, strategies=names)[0] == 0
    found = Analysis(report_json.read(tmp_path / "report.json"))
    assert verdict(found).startswith("Both strategies keep every budget; ")
