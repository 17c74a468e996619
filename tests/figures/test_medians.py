"""The figures of several repeats as one row."""

from dataclasses import replace

from headway.core.request import NEVER
from headway.figures.engine_figures import EngineFigures
from headway.figures.lane_figures import LaneFigures
from headway.figures.medians import median_figures

TIMES = {
    f"{metric}_p{percent}": 5
    for metric in ("queue", "ttft", "tpot")
    for percent in (50, 90, 95, 99)
}
LANE = LaneFigures(lane="chat", offered=20, good=11, gaps=9, **TIMES)
IDLE = EngineFigures(0.0, *[0] * 5, *[0.0] * 9, 0, 0.0, 0, 0)


def test_each_figure_is_the_median_of_its_own_repeats():
    others = replace(LANE, good=15, ttft_p50=7), replace(LANE, good=13, ttft_p50=NEVER)
    found = median_figures([LANE, *others])
    assert (found.good, found.ttft_p50, found.lane, found.offered) == (13, 7, "chat", 20)
    assert median_figures([LANE, others[0]]).good == 11, "the lower one of two"


def test_what_was_not_served_is_a_count_of_some_repeat():
    """The median of a sum is not the sum of its parts' medians."""
    one = replace(IDLE, refused=2, failed=1, unserved=3)
    found = median_figures([one, replace(IDLE, refused=1, failed=2, unserved=3)])
    assert (found.refused, found.failed, found.unserved) == (1, 1, 3)


def test_a_figure_that_one_repeat_lacks_has_no_median():
    assert median_figures([LANE, replace(LANE, ttft_p99=None)]).ttft_p99 is None


def test_without_a_step_no_block_is_in_use():
    assert (IDLE.kv_mean(64), IDLE.kv_peak(64)) == (0.0, 0.0)
    busy = replace(IDLE, busy=0.5, free_mean=16.0, free_least=8)
    assert (busy.kv_mean(64), busy.kv_peak(64)) == (0.75, 0.875)
