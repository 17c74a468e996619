"""benchmarks.budgets pools, pairs and bounds its windows, and goes on from what it has kept."""

import pytest
from rich.console import Console

from benchmarks.budgets.ablation import Ablation
from benchmarks.budgets.kept import Kept, Pair, least_ratio
from benchmarks.budgets.mixes import MIXES
from benchmarks.budgets.picture import SERIES, picture
from benchmarks.budgets.tables import judged, part_of
from benchmarks.budgets.trial import Done, Job, Score, work
from benchmarks.budgets.variants import first_come, parts
from headway.errors import SettingError


def score(good, offered=10):
    return Score({"chat": good}, {"chat": offered})


def test_a_bound_lies_below_what_the_windows_say_unless_they_agree():
    theirs = [score(2), score(4), score(3)]
    twice = Pair([score(4), score(8), score(6)], theirs)
    assert (twice.ratio, twice.least_ratio) == (pytest.approx(2), pytest.approx(2))
    mixed = Pair([score(2), score(8), score(9)], theirs)
    assert 1 <= mixed.least_ratio < mixed.ratio == pytest.approx(19 / 9)
    assert mixed.least_points < mixed.points == pytest.approx(100 * 10 / 30)
    assert least_ratio([3.0, 3.0], [1.5, 1.5]) == pytest.approx(2)


def test_requests_are_pooled_and_not_windows():
    assert Pair([score(0, 10), score(90, 90)], [score(10, 10), score(35, 90)]).ratio == 2


def test_shipped_traces_make_windows_and_a_mix_without_its_trace_is_refused():
    windows = MIXES["bursty"].windows(None, 3)
    assert [each.begin for each in windows] == sorted({each.begin for each in windows})
    at_1, at_2 = (MIXES["bursty"].requests(windows[0], load) for load in (1.0, 2.0))
    assert len(at_1) == len(at_2)
    assert at_2[-1].arrived == at_1[-1].arrived // 2
    with pytest.raises(SettingError, match="mooncake-conversation does not come with the package"):
        MIXES["long"].windows(None, 3)


def test_what_is_kept_is_not_run_again(tmp_path):
    source = MIXES["smooth"].windows(None, 6)[0]
    job = Job("smooth", source, 1.0, (first_come(4, 256), first_come(4, 512)))
    kept = Kept(tmp_path / "raw.jsonl")
    kept.keep(Done(job, {job.variants[0].name: score(3)}))
    again = Kept(tmp_path / "raw.jsonl")
    assert again.scores == kept.scores
    assert again.lacks(job).variants == job.variants[1:]


def test_tables_and_picture_leave_out_what_was_not_run():
    kept = Kept()
    source = MIXES["bursty"].windows(None, 6)[0]
    budgets = next(each for each in parts(4, 256) if each.name == "budgets")
    job = Job("bursty", source, 1.5, (first_come(4, 256), budgets))
    kept.keep(Done(job, {job.variants[0].name: score(3), "budgets": score(9)}))
    found = Ablation({"bursty": [source]}, [1.5], 1, Console(), kept)
    part = part_of(found)
    rows = {row[0]: row[1:] for row in part.tables[0].rows}
    assert rows["first come"] == ["30.0 (256)"]
    assert (rows["budgets"], rows["priority"]) == (["90.0"], ["-"])
    figures = {each.name: each for each in judged(found)}
    assert figures["over_bursty_first_come_1_5_least"].least == 2.5
    assert not figures["over_bursty_first_come_1_5_least"].falls_short
    drawn = picture(found)
    assert all(f">{title}</text>" in drawn for title in SERIES)


def test_a_window_is_served_and_every_timed_request_counted():
    source = MIXES["smooth"].windows(None, 60)[0]
    whole = {each.name: each for each in parts(256, 512)}["budgets"]
    done = work(Job("smooth", source, 1.0, (whole,)))
    offered = MIXES["smooth"].requests(source, 1.0)
    assert sum(done.scores["budgets"].offered.values()) == len(offered) > 10
    assert done.scores["budgets"].share > 0.9
