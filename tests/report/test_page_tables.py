"""Cells of report.html that are not simply the figures of report.json."""

from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.page.page_tables import price, throughput
from tests.commands.small_comparison import compared


def test_a_price_of_0_gives_costs_of_0(tmp_path):
    assert compared(tmp_path, strategies="dynamic-lanes", price_per_hour=0.0)[0] == 0
    head, (row,) = throughput(Analysis(report_json.read(tmp_path / "report.json")))
    said = dict(zip(head, row, strict=True))
    assert said["cost / M tokens"] == said["cost / 1,000 good"] == "0"


def test_a_run_with_nothing_to_price_has_no_cost():
    assert price([None]) == price([0.5, None]) == "-"
    assert price([0.0025, 0.0035, 1.5], 1_000) == "3.5 (2.5..1,500)"
