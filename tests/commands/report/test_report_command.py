"""`headway report`: the page of one report, and the differences of two."""

import json
from dataclasses import replace
from functools import cache

import pytest

from headway import __version__
from headway.commands.report.report import read_report
from headway.errors import SettingError
from headway.figures.intervals.block_bootstrap import NO_INTERVAL, Interval
from headway.figures.intervals.difference import IN_BUDGET, Difference
from headway.report.difference.difference_page import difference_page
from headway.report.difference.pairing import PairedLane, pair_reports
from tests.commands.report.reports import NAMES, altered, reported

analysis = cache(read_report)  # of the reports that every test reads


def paired(folders, *names):
    first, second = (analysis(folders[name]) for name in names)
    return pair_reports(first, second, names)


def test_one_report_gets_the_same_page_again(folders, tmp_path):
    before = folders["quick"].with_suffix(".html").read_text()
    target = tmp_path / "again.html"
    status, said = reported(folders["quick"], html=target)
    assert status == 0 and target.read_text() == before and str(target)[:20] in said
    folders["quick"].with_suffix(".html").unlink()
    reported(folders["quick"])
    assert folders["quick"].with_suffix(".html").read_text() == before


def test_a_report_does_not_differ_from_itself(folders):
    found = paired(folders, "quick", "quick")
    assert found.others == () and found.left_out == ()
    assert all(each.is_paired for each in found.lanes)
    changes = [change for each in found.lanes for change in each.differences]
    assert changes and all(change.change == 0 for change in changes)
    assert found.answer.startswith("No share inside a budget differs for sure.")


def test_the_same_requests_are_paired_and_the_slower_machine_is_worse(folders):
    found = paired(folders, "quick", "slow")
    assert all(each.is_paired for each in found.lanes)
    assert {each.strategy for each in found.lanes} == set(NAMES.split(","))
    rows = {name: analysis(folders[name]) for name in ("quick", "slow")}
    worse = []
    for each in found.lanes:
        for change in each.differences:
            if change.metric == IN_BUDGET:
                shares = [found_.latency[each.strategy][each.lane][0] for found_ in rows.values()]
                assert [change.first, change.second] == [one.attainment for one in shares]
            worse.append(change.verdict)
    assert "worse" in worse
    assert worse.count("worse") > worse.count("better")
    assert all("budget of" in text or text.startswith("Traffic") for text in found.others)


def test_the_answer_says_of_how_many_shares_it_is_the_largest(folders):
    found = paired(folders, "quick", "slow")
    sure = Difference(IN_BUDGET, (99, 99), 0.5, 0.7, Interval(0.1, 0.3), True)
    unsure = replace(sure, interval=Interval(-0.1, 0.5))
    few = replace(sure, interval=NO_INTERVAL)
    one = PairedLane("static", "chat", True, (sure,))
    lanes = (one, *(replace(one, differences=(each,)) for each in (unsure, unsure, unsure, few)))
    end = ": 70 % instead of 50 %."
    assert replace(found, lanes=(one,)).answer.endswith(end)
    end += " 1 of 4 shares differ for sure; in equal runs 0.2 would by chance."
    assert replace(found, lanes=lanes).answer.endswith(end)


def test_requests_for_longer_answers_are_not_paired_and_this_is_stated(folders):
    found = paired(folders, "one", "longer")
    assert {each.lane: each.is_paired for each in found.lanes} == {"chat": False, "voice": True}
    assert "The requests of chat ask for answers of other lengths." in found.others


def test_different_requests_are_not_paired_and_the_differing_seed_is_stated(folders):
    found = paired(folders, "quick", "other")
    assert "Seed in quick: 0; in other: 7." in found.others
    assert not all(each.is_paired for each in found.lanes)


@pytest.mark.parametrize(
    "place, value, sentence",
    [
        (("command",), "demo", "Command in quick: compare; in changed: demo."),
        (("headway",), "9.9", f"headway in quick: {__version__}; in changed: 9.9."),
        (("enforced",), True, "Limits enforced in quick: no; in changed: yes."),
        (("model", "slots"), 4, "Memory in quick: "),
        (("model", "num_blocks"), 99, "Memory in quick: "),
        (("model", "context"), 99, "Memory in quick: "),
        (("model", "block_size"), 8, "Memory in quick: "),
        (("model", "threads"), 9, "Model in quick: "),
        (
            ("model", "cost_model"),
            "x.json",
            "Cost model in quick: not stated; in changed: x.json, for ",
        ),
        (("workload", "drain_ns"), 10**9, "Time in quick: "),
        (("workload", "requests_per_second"), 9.0, "Rate in quick: "),
        (
            ("rules", 0, "rule"),
            "groups of 4",
            "static in quick: groups of exactly 16, padded to the ",
        ),
        (("rules", 0, "policies", "step_tokens"), 7, "The policies of static differ."),
        (("workload", "offered_load"), 0.9, ""),
        (("cores_of_other_processes", "static"), 0.9, ""),
        (("baseline",), "static", ""),
    ],
)
def test_each_differing_setting_is_stated(folders, tmp_path, place, value, sentence):
    changed = altered(folders["quick"], tmp_path, place, value)
    found = pair_reports(
        analysis(folders["quick"]), read_report(changed), ("quick", "changed")
    ).others
    assert len(found) == bool(sentence), found
    assert all(each.startswith(sentence) and each.endswith(".") for each in found)


def test_strategies_of_one_report_alone_are_left_out_and_named(folders):
    found = paired(folders, "quick", "one")
    assert {each.strategy for each in found.lanes} == {"static"}
    assert found.left_out == ("Only in quick: continuous-chunk-64.",)
    assert {each.strategy for each in paired(folders, "one", "another").lanes} == {
        "static / continuous-mixed"
    }, "one of each is compared whatever its name"
    with pytest.raises(SettingError, match="quick and another have no strategy in common: static"):
        paired(folders, "quick", "another")


def test_the_terminal_has_80_columns_and_every_figure(folders):
    status, said = reported(folders["quick"], folders["slow"])
    lines = said.splitlines()
    assert status == 0 and max(map(len, lines)) <= 80
    found = paired(folders, "quick", "slow")
    rows = [line for line in lines if line.startswith(("in budget", "TTFT", "TPOT", "E2E"))]
    assert len(rows) == sum(len(each.differences) for each in found.lanes)
    assert all(row.split()[-1] in ("better", "worse", "unclear", "-") for row in rows)
    assert not any("…" in line for line in lines)


def test_the_json_has_the_same_figures(folders, capsys):
    assert reported(folders["quick"], folders["slow"], as_json=True) == (0, "")
    plain = json.loads(capsys.readouterr().out)
    found = paired(folders, "quick", "slow")
    assert len(plain["lanes"]) == len(found.lanes)
    for mine, each in zip(plain["lanes"], found.lanes, strict=True):
        assert (mine["strategy"], mine["lane"], mine["paired"]) == (
            *(each.strategy, each.lane),
            each.is_paired,
        )
        for one, change in zip(mine["differences"], each.differences, strict=True):
            assert one["metric"] == change.metric and one["second_is"] == change.verdict
            if one["interval"]:
                assert one["interval"] == [change.interval.low, change.interval.high]
    assert set(plain["rates"]) == set(NAMES.split(","))


@pytest.mark.parametrize("place", [("command",), ("model", "name"), ("endpoints", 0, "serves")])
def test_the_page_runs_no_script_that_a_report_holds(folders, tmp_path, place):
    evil = altered(folders["quick"], tmp_path, place, "</title><script>alert(1)</script>")
    assert reported(evil)[0] == 0
    page = evil.with_suffix(".html").read_text()
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page


def test_the_page_of_a_difference_is_written_and_links_to_nothing_outside(folders, tmp_path):
    target = tmp_path / "difference.html"
    status, said = reported(folders["quick"], folders["slow"], html=target)
    assert status == 0 and "The page is" in said
    names = [f"{folders[name].parent.name}/report.json" for name in ("quick", "slow")]
    pair = pair_reports(*(read_report(folders[name]) for name in ("quick", "slow")), tuple(names))
    assert target.read_text() == difference_page(pair)
    assert "http" not in target.read_text().replace("http://www.w3.org", "")
