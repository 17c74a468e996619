"""Files and options that `headway report` refuses with a one-line error."""

import json

import pytest

from headway.commands.report.report import PAGE
from headway.errors import SettingError
from tests.commands.report.reports import altered, reported, small_reports


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Reports of few requests, because their figures do not matter here."""
    return small_reports(tmp_path_factory, ("quick", "one"), seconds=10.0)


@pytest.mark.parametrize(
    "text, reason",
    [
        (None, "cannot be read: No such file"),
        ("{", "cannot be read as a report: it is not JSON: Expecting"),
        ("[]", "cannot be read as a report: "),
        ("[" * 100_000, "cannot be read as a report: maximum recursion depth"),
        ('{"a": 1}', "cannot be read as a report: it has no 'headway_report'"),
        ('{"headway_report": 0}', "is a report of version 0, and this headway reads version 1"),
        ('{"headway_report": 1, "budgets": {}, "strategies": []}', "is no whole report: "),
        (
            '{"headway_report": 1, "command": "replay", "budgets": {}, "strategies": []}',
            "is of headway replay: its rows are for programs",
        ),
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
        (("workload",), "chat", "workload: a mapping is wanted, not str"),
        (("workload", "warm_up_ns"), {}, "workload: warm_up_ns: a whole number .* not {}"),
    ],
)
def test_a_malformed_report_is_refused_in_one_line(folders, tmp_path, place, value, reason):
    bad = altered(folders["quick"], tmp_path, place, value)
    with pytest.raises(SettingError, match=f"cannot be read as a report: .*{reason}") as caught:
        reported(bad)
    assert str(bad) in str(caught.value) and "\n" not in str(caught.value)


def places(plain, above=()):
    """The path of every key of a mapping, and of the mappings inside it."""
    for key, value in plain.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))


def test_a_report_that_lacks_any_one_fact_is_shown_or_refused_in_one_line(folders, tmp_path):
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
        (("model", "num_blocks"), float("inf"), "cannot convert float infinity to integer"),
    ],
)
def test_a_report_that_is_not_whole_is_refused_in_one_line(folders, tmp_path, place, value, reason):
    bad = altered(folders["quick"], tmp_path, place, value)
    with pytest.raises(
        SettingError, match=f"changed.json is no whole report: .*{reason}"
    ) as caught:
        reported(bad)
    assert "\n" not in str(caught.value)


def test_a_page_never_replaces_the_json_of_a_report(folders, tmp_path):
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


def test_a_wrong_number_of_reports_and_an_unwritable_page_are_refused(folders, tmp_path):
    one = folders["quick"]
    with pytest.raises(SettingError, match="3 reports were given, and differences are of two"):
        reported(one, one, one)
    with pytest.raises(SettingError, match="--json prints the differences of two"):
        reported(one, as_json=True)
    with pytest.raises(SettingError, match="cannot be written: No such file"):
        reported(one, html=tmp_path / "nowhere" / "page.html")


@pytest.mark.parametrize("count", [1, 2])
def test_a_users_file_is_not_replaced_by_the_page_and_a_page_is(folders, tmp_path, count):
    mine = tmp_path / "mine.html"
    mine.write_text("<!doctype html><title>my notes</title>")
    files = [folders["quick"]] * count
    with pytest.raises(SettingError, match=r"mine\.html is there already, and not a page of"):
        reported(*files, html=mine)
    assert mine.read_text() == "<!doctype html><title>my notes</title>"
    mine.write_bytes(PAGE + b"<title>an older page")
    assert reported(*files, html=mine)[0] == 0
    assert "an older page" not in mine.read_text()


def test_a_page_beside_the_report_that_is_the_users_is_not_replaced(folders, tmp_path):
    report, mine = tmp_path / "rows.json", tmp_path / "rows.html"
    report.write_bytes(folders["one"].read_bytes())
    mine.write_text("my notes")
    with pytest.raises(SettingError, match=r"rows\.html is there already"):
        reported(report)
    assert mine.read_text() == "my notes"
