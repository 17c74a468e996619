"""The share that the verdict rests on, and how sure it says that it is."""

from statistics import median

import pytest

from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.verdict import standings, verdict
from tests.commands.small_comparison import compared


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_median_of_repeats_has_no_interval_of_one_of_them(tmp_path, repeats):
    wishes = {"strategies": "static,continuous-chunk-64", "repeat": repeats, "seconds": 40.0}
    assert compared(tmp_path, **wishes)[0] == 0
    found = Analysis(report_json.read(tmp_path / "report.json"))
    ranked = standings(found)
    assert len(ranked) == 2
    for each in ranked:
        runs = found.latency[each.strategy][each.lane]
        assert len(runs) == repeats
        assert each.attainment == median(run.attainment for run in runs)
        assert each.interval.is_empty is (repeats > 1)
    assert ("interval" in verdict(found)) is (repeats == 1)
    assert (f"n {ranked[0].offered:,}, the median of 3 repeats" in verdict(found)) is (repeats > 1)
