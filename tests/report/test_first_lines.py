"""The page's first lines, and labels of its charts, where there is much to say."""

import json

from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.formatting import points_less
from headway.report.page.first_screen import header
from headway.report.page.html_parts import table
from headway.report.page.page_tables import summary
from headway.report.page.svg_chart import log_axis
from tests.commands.small_comparison import compared

NAMES = [f"continuous-chunk-{size}" for size in (16, 32, 64, 96, 128, 256, 512)]


def test_of_many_broken_off_strategies_the_first_are_named(tmp_path):
    assert compared(tmp_path, strategies=",".join(NAMES), seconds=2.0)[0] == 0
    path = tmp_path / "report.json"
    plain = json.loads(path.read_text())
    for each in plain["strategies"]:
        each["complete"] = False
    path.write_text(json.dumps(plain | {"complete": False, "all_runs": False}))
    said = header(Analysis(report_json.read(path)))
    assert f"Broken off: {', '.join(NAMES[:5])} and 2 more in mid-run." in said
    assert NAMES[5] not in said


def test_labels_of_a_long_logarithmic_axis_do_not_touch():
    assert [label for _, label in log_axis([1, 1e6], "").ticks()] == [
        *("1", "10", "100", "1k", "10k", "100k", "1M")
    ]
    assert len(log_axis([1e-4, 1e5], "").ticks()) == 5


def test_a_loss_of_one_point_is_one_point():
    assert [points_less(each) for each in (0.3, 1.0, 12.4)] == [
        *("under 1 point less", "1 point less", "12 points less")
    ]


def test_an_option_in_a_table_is_kept_on_one_line():
    said = table("capacity", ["strategy", "capacity"], [["static", "take --seconds 90 or <more>"]])
    assert 'take <span class="option">--seconds</span> 90 or &lt;more&gt;' in said


def test_a_strategy_alone_is_no_baseline(tmp_path):
    for names, title in (("static", "static"), ("static,priority", "static (baseline)")):
        folder = tmp_path / title
        folder.mkdir()
        assert compared(folder, strategies=names, seconds=2.0)[0] == 0
        found = Analysis(report_json.read(folder / "report.json"))
        _, (_, rows) = summary(found, ["static"])
        assert [row[0] for row in rows] == [title]
