"""The threshold of a cascade from data: a sure one, or the reason why there is none."""

import math
import random

import pytest

from headway.errors import SettingError
from headway.routing import Confident, Labelled, RouteAnswer, calibrate_cascade, paired
from headway.routing.calibrate import share_bounds, tail


def drawn(n, seed, large=0.97):
    """The small target is right with probability exp(score), so its scores are calibrated."""
    draw = random.Random(seed)
    scores = [-draw.expovariate(2.0) for _ in range(n)]
    return [
        Labelled(score, draw.random() < math.exp(score), draw.random() < large) for score in scores
    ]


def true_quality(threshold, large=0.97):
    """The exact quality for scores of -Exp(2). The large target answers below the threshold."""
    if threshold == math.inf:
        return large
    depth = max(0.0, -threshold)
    return (2 / 3) * (1 - math.exp(-3 * depth)) + large * math.exp(-2 * depth)


def test_a_threshold_keeps_the_wanted_quality_and_has_an_interval():
    found = calibrate_cascade(drawn(2_000, 1), 0.9)
    assert -0.41 < found.threshold < -0.3
    assert true_quality(found.threshold) > 0.9 > true_quality(-0.42)
    assert 0.9 <= found.low <= found.quality <= found.high
    assert 0.3 < found.escalated < 0.9 and found.n == 2_000
    assert f"{found.escalated:.1%} escalated" in found.reason
    assert Confident(found.threshold).least == found.threshold


def test_more_data_let_a_cascade_escalate_less():
    shares = [calibrate_cascade(drawn(n, 2), 0.9).escalated for n in (150, 1_000, 8_000)]
    assert shares[0] > shares[1] > shares[2]


def test_the_promised_quality_is_missed_as_rarely_as_promised():
    """5 % of 300 are 15; up to 24 are expected by chance. The seeds are fixed."""
    found = [calibrate_cascade(drawn(250, seed), 0.9) for seed in range(300)]
    broken = [each for each in found if each.is_found and true_quality(each.threshold) < 0.9]
    assert sum(each.is_found for each in found) > 250
    assert len(broken) <= 24


def test_a_calibration_without_a_threshold_gives_a_reason():
    few = calibrate_cascade(drawn(19, 1), 0.9)
    assert not few.is_found and "19 requests are too few" in few.reason
    little = calibrate_cascade([Labelled(-1.0, False, at > 0) for at in range(25)], 0.9)
    assert math.isnan(little.threshold) and "too little data" in little.reason
    bad = calibrate_cascade(drawn(500, 3, large=0.7), 0.9)
    assert "the large target itself is right in" in bad.reason
    with pytest.raises(SettingError, match="calibrated"):
        Confident(bad.threshold)


def test_nothing_is_escalated_if_all_answers_of_the_small_target_are_right():
    found = calibrate_cascade([Labelled(-at / 100, True) for at in range(100)], 0.9)
    assert found.escalated == 0 and found.threshold == -0.99


def test_pairs_without_labels_are_right_if_both_answers_agree():
    pairs = [
        (RouteAnswer(None, "Yes", -0.1), RouteAnswer(None, "yes")),
        (RouteAnswer(None, "no", -2.0), RouteAnswer(None, "yes")),
    ]
    assert paired(pairs) == [Labelled(-0.1, True), Labelled(-2.0, False)]


@pytest.mark.parametrize("quality", [0, 1, 2])
def test_a_quality_or_a_score_that_cannot_be_tested_is_refused(quality):
    with pytest.raises(SettingError, match="none that can be tested"):
        calibrate_cascade(drawn(50, 1), quality)
    with pytest.raises(SettingError, match="a score is nan"):
        calibrate_cascade([Labelled(math.nan, True)] * 50, 0.9)


def test_the_bounds_of_a_share_are_exact():
    """The 95 % interval of Clopper and Pearson for 8 of 10, as in printed tables."""
    low, high = share_bounds(8, 10, 0.95)
    assert (round(low, 4), round(high, 4)) == (0.4439, 0.9748)
    assert share_bounds(0, 10, 0.9)[0] == 0 and share_bounds(10, 10, 0.9)[1] == 1
    assert tail(0, 10, 0.3) == 1 and tail(10, 10, 0.5) == pytest.approx(2**-10)
    assert tail(100, 8_000, 0.9) == 1 and tail(7_999, 8_000, 0.5) == 0, "no term that underflows"
    assert tail(4, 10, 0.5) == pytest.approx(848 / 1024)  # 848 = 386 + 252 + 210
    assert (tail(3, 10, 0.0), tail(3, 10, 1.0)) == (0.0, 1.0)
