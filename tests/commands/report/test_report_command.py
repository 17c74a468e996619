"""`headway report`: a page once more, and two reports beside each other."""

import json
from io import StringIO

import pytest
from rich.console import Console

from headway import __version__
from headway.commands.report.report import ReportOptions, read_report, run_report
from headway.core.cost.step_cost import StepCost
from headway.errors import SettingError
from headway.figures.intervals.difference import IN_BUDGET
from headway.report.difference.difference_page import difference_page
from headway.report.difference.pairing import pair_reports
from headway.traffic.from_yaml import read_endpoints
from tests.commands.small_comparison import compared
from tests.commands.testbeds import COST, fake_testbed

NAMES = "static,continuous-chunk-64"
SLOWER = StepCost.of(3_600_000, per_token=120_000, per_pair=24)
RATE = {"rate": 6.0, "seconds": 40.0}
LANES = """
chat: {arrivals: poisson, prompt: [20, 200], answer: 20, budget: {ttft: 60, tpot: 30}, weight: 3}
voice: {arrivals: poisson, prompt: 16, answer: 8, budget: {ttft: 40}}
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same requests on a machine and on a slower one, other ones, and another strategy."""
    made = {
        name: tmp_path_factory.mktemp(name) for name in ("quick", "slow", "other", "one", "another")
    }
    lanes = made["quick"] / "lanes.yaml"
    lanes.write_text(LANES)

    def make(name, strategies, cost=COST, seed=0):
        services, testbed = read_endpoints(lanes), fake_testbed(cost=cost)
        wishes = {"strategies": strategies, "seed": seed, **RATE}
        assert compared(made[name], testbed, services, **wishes)[0] == 0

    make("quick", NAMES)
    make("slow", NAMES, SLOWER)
    make("other", NAMES, seed=7)
    make("one", "static")
    make("another", "continuous-mixed")
    return {name: folder / "report.json" for name, folder in made.items()}


def reported(*files, width=80, **wishes):
    screen = Console(file=StringIO(), width=width, force_terminal=False)
    status = run_report(ReportOptions(files, **wishes), screen)
    return status, screen.file.getvalue()


def paired(folders, *names):
    first, second = (read_report(folders[name]) for name in names)
    return pair_reports(first, second, names)


def test_one_report_has_its_page_again(folders, tmp_path):
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
    rows = {name: read_report(folders[name]) for name in ("quick", "slow")}
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


def test_other_requests_are_not_paired_and_what_differs_is_said(folders):
    found = paired(folders, "quick", "other")
    assert "Seed: 0 in quick, 7 in other." in found.others
    assert not all(each.is_paired for each in found.lanes)


@pytest.mark.parametrize(
    "place, value, sentence",
    [
        (("command",), "demo", "Command: compare in quick, demo in changed."),
        (("headway",), "9.9", f"headway: {__version__} in quick, 9.9 in changed."),
        (("enforced",), True, "Limits enforced: no in quick, yes in changed."),
        (("model", "slots"), 4, "Memory: "),
        (("model", "num_blocks"), 99, "Memory: "),
        (("model", "context"), 99, "Memory: "),
        (("model", "block_size"), 8, "Memory: "),
        (("model", "threads"), 9, "Model: "),
        (("model", "cost_model"), "x.json", "Cost model: not stated in quick, x.json, for "),
        (("workload", "drain_ns"), 10**9, "Time: "),
        (("workload", "requests_per_second"), 9.0, "Rate: "),
        (("rules", 0, "rule"), "groups of 4", "static: groups of exactly 16, padded to the "),
        (("rules", 0, "policies", "step_tokens"), 7, "The policies of static differ."),
        (("workload", "offered_load"), 0.9, ""),
        (("cores_of_other_processes", "static"), 0.9, ""),
        (("baseline",), "static", ""),
    ],
)
def test_each_setting_that_differs_is_said(folders, tmp_path, place, value, sentence):
    changed = altered(folders["quick"], tmp_path, place, value)
    found = pair_reports(
        read_report(folders["quick"]), read_report(changed), ("quick", "changed")
    ).others
    assert len(found) == bool(sentence), found
    assert all(each.startswith(sentence) and each.endswith(".") for each in found)


def altered(file, folder, place, value):
    """The report with another value at this place of the JSON."""
    plain = json.loads(file.read_text())
    inner = plain
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    target = folder / "changed.json"
    target.write_text(json.dumps(plain))
    return target


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
    found = pair_reports(*(read_report(folders[name]) for name in ("quick", "slow")), ("a", "b"))
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


def test_the_page_opens_with_the_answer(folders, tmp_path):
    target = tmp_path / "difference.html"
    status, said = reported(folders["quick"], folders["slow"], html=target)
    assert status == 0 and "The page is" in said
    names = [f"{folders[name].parent.name}/report.json" for name in ("quick", "slow")]
    pair = pair_reports(*(read_report(folders[name]) for name in ("quick", "slow")), tuple(names))
    assert target.read_text() == difference_page(pair)
    assert "http" not in target.read_text().replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    "text, reason",
    [
        (None, "cannot be read: No such file"),
        ("{", "cannot be read as a report: Expecting"),
        ("[]", "cannot be read as a report: "),
        ('{"a": 1}', "cannot be read as a report: it has no 'headway_report'"),
        ('{"headway_report": 0}', "is a report of version 0, and this headway reads version 1"),
        ('{"headway_report": 1, "budgets": {}, "strategies": []}', "is no whole report: "),
    ],
)
def test_a_file_that_is_no_report_is_named_in_one_line(folders, tmp_path, text, reason):
    bad = tmp_path / "bad.json"
    if text is not None:
        bad.write_text(text)
    with pytest.raises(SettingError, match=reason) as caught:
        reported(folders["quick"], bad)
    assert str(bad) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "place, value, reason",
    [
        (("budgets",), [], "budgets: a mapping is wanted, not list"),
        (("budgets", "chat"), 5, "budgets: chat: a mapping is wanted, not int"),
        (("budgets", "chat", "ttft"), "soon", "budgets: chat: ttft: a whole number .* not 'soon'"),
        (
            ("budgets", "chat", "ttft"),
            -1,
            "budgets: chat: ttft: a whole number from 0 on is wanted, not -1",
        ),
        (("budgets", "chat", "first"), 1, "budgets: chat: 'first' is not known"),
        (("strategies",), {"static": {}}, "strategies: a list is wanted, not dict"),
        (("strategies", 0), "static", "strategies: number 0: a mapping is wanted, not str"),
        (("strategies", 0, "name"), 5, "strategies: number 0: a name is wanted, not int"),
        (("strategies", 0, "complete"), "yes", "static: complete is true or false, not str"),
        (("strategies", 0, "offered"), [9], "static: offered: a mapping is wanted, not list"),
        (("strategies", 0, "offered", "chat"), True, "offered: chat: a whole number .* True"),
        (("strategies", 0, "nanoseconds"), None, "static: nanoseconds: a whole number"),
        (("strategies", 0, "requests"), [], "static: requests: a mapping is wanted, not list"),
        (("strategies", 0, "requests", "columns", 0), "name", "requests: the column 'name' is not"),
        (("strategies", 0, "steps", "rows", 0, 0), "one", "static: steps: column step: there is"),
        (("strategies", 0, "client"), 3, "static: client: a mapping is wanted, not int"),
        (("strategies", 0, "size_changes"), {}, "it has no 'columns'"),
    ],
)
def test_a_report_of_other_types_is_refused_in_one_line(folders, tmp_path, place, value, reason):
    bad = altered(folders["quick"], tmp_path, place, value)
    with pytest.raises(SettingError, match=f"cannot be read as a report: .*{reason}") as caught:
        reported(bad)
    assert str(bad) in str(caught.value) and "\n" not in str(caught.value)


def places(plain, above=()):
    """Every key of a mapping, and of those inside."""
    for key, value in plain.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))


def test_without_any_fact_it_is_one_line_or_a_page(folders, tmp_path):
    whole = json.loads(folders["one"].read_text())
    rows, refused = ("strategies", "budgets", "rules"), set()
    about = {key: value for key, value in whole.items() if key not in rows}
    bad = tmp_path / "bad.json"
    for *path, last in places(about):
        plain = json.loads(json.dumps(whole))
        inner = plain
        for key in path:
            inner = inner[key]
        del inner[last]
        bad.write_text(json.dumps(plain))
        try:
            assert reported(bad)[0] == 0
            assert reported(folders["one"], bad)[0] == 0
        except SettingError as error:
            assert str(bad) in str(error) and "\n" not in str(error)
            refused.add((*path, last))
    assert {("workload",), ("workload", "window_ns"), ("model", "name"), ("endpoints",)} <= refused


@pytest.mark.parametrize(
    "place, value, reason",
    [
        (("strategies",), [], "strategies: there is none"),
        (("workload", "window_ns"), "20 s", "workload: window_ns: int is wanted, not str"),
        (("workload", "window_ns"), True, "workload: window_ns: int is wanted, not bool"),
        (("model",), "fake", "model: a mapping is wanted, not str"),
        (("endpoints",), {}, "endpoints: list is wanted, not dict"),
        (("endpoints", 0), 1, "endpoints: number 0: a mapping is wanted, not int"),
        (("endpoints", 0), {"name": "chat"}, "endpoints: number 0: serves is missing"),
        (("endpoints", 0, "name"), "x", "endpoints: number 0: x has no budget"),
        (("strategies", 0, "offered"), {"chat": 9}, "static: offered: voice is missing"),
        (("rules",), 5, "object is not iterable"),
    ],
)
def test_a_report_that_is_not_whole_is_refused_in_one_line(folders, tmp_path, place, value, reason):
    bad = altered(folders["quick"], tmp_path, place, value)
    with pytest.raises(
        SettingError, match=f"changed.json is no whole report: .*{reason}"
    ) as caught:
        reported(bad)
    assert "\n" not in str(caught.value)


def test_a_page_never_replaces_the_rows(folders, tmp_path):
    file, other = tmp_path / "c.json", tmp_path / "d.json"
    for each in (file, other):
        each.write_bytes(folders["one"].read_bytes())
    page = tmp_path / "rows.html"
    page.hardlink_to(file)
    for files, html in (
        ((file,), file),
        ((file, other), other),
        ((file,), tmp_path / "x" / ".." / "c.json"),
        ((file,), page),
        ((page,), None),
    ):
        with pytest.raises(SettingError, match=r"the page would replace .*: name another file"):
            reported(*files, html=html)
    assert file.read_bytes() == other.read_bytes() == folders["one"].read_bytes()


def test_what_cannot_be_obeyed_is_refused(folders, tmp_path):
    one = folders["quick"]
    with pytest.raises(SettingError, match="3 reports were given, and differences are of two"):
        reported(one, one, one)
    with pytest.raises(SettingError, match="--json prints the differences of two"):
        reported(one, as_json=True)
    with pytest.raises(SettingError, match="cannot be written: No such file"):
        reported(one, html=tmp_path / "nowhere" / "page.html")
