"""A guardrail's evidence: fair if versions are exchanged, strong where waits are predictable."""

from itertools import product
from math import exp, log
from random import Random
from statistics import mean, pvariance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.rollout.control import FEW, Expected
from headway.rollout.evidence import Evidence
from headway.rollout.guardrail import Guardrail, Seen
from headway.rollout.switchback import SECOND
from headway.rollout.watch import Watch
from tests.rollout.test_trial import row

PAIRS = 7  # all 128 orders of their versions are tried
HEAVY = 0.8  # spread of a wait's logarithm where a short wait is expected; elsewhere SURE
SURE = 0.02


def half(random, factor=1.0):
    """The requests of a slice, sometimes none. The longest waits are the most predictable."""
    found = []
    for n in range(random.choice((0, 2, 8, 16))):
        expected = random.choice((-2, -2, 0, 2)) + random.uniform(0, 0.3)
        wait = exp(expected + random.gauss() * (SURE if expected > 1 else HEAVY)) * factor
        seen = Seen("chat", 0, 10, n, expected=expected)
        seen.row = row(n, 0, round((wait + 0.01) * SECOND))
        found.append(seen)
    return found


def watched(pairs, orders, figure="ttft_p95", allowed=0.0):
    """The watch after these pairs. If the order of a pair is True, its halves are exchanged."""
    watch = Watch(Guardrail(figure, "chat", allowed), "chat")
    for (control, candidate), is_exchanged in zip(pairs, orders, strict=True):
        watch.learn([*control, *candidate])
        if watch.pairs or watch._values or not watch.is_tail:
            watch.see(*((candidate, control) if is_exchanged else (control, candidate)))
    return watch


@pytest.mark.parametrize("figure", ["ttft_p95", "queue_p95", "cost_per_good"])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=6, deadline=None)
def test_over_all_orders_of_equal_versions_the_mean_e_value_is_one(figure, seed):
    """Weights, spreads and their scale are learnt on the way, and none of them biases the coin."""
    random = Random(seed)
    pairs = [(half(random), half(random)) for _ in range(PAIRS)]
    ended = [watched(pairs, orders, figure) for orders in product((False, True), repeat=PAIRS)]
    assert mean(exp(each.evidence) for each in ended) == pytest.approx(1, rel=1e-6)
    assert mean(exp(each.gain) for each in ended) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("is_worse", [True, False])
def test_evidence_too_large_for_a_float_is_still_reported(is_worse):
    watch = Watch(Guardrail("refusals", "chat"), "chat")
    halves = [[Seen("chat", 0, 0, n, refused=refused)] for n, refused in enumerate((False, True))]
    for _ in range(1_500):
        watch.learn([*halves[0], *halves[1]])
        watch.see(*(halves if is_worse else reversed(halves)))
    told = Evidence.of(watch, 5.0, 0.05)
    assert (told.e_value if is_worse else told.gain) > 1e300


@pytest.mark.evidence
def test_a_false_alarm_of_a_guardrail_is_as_rare_as_promised():
    """200 trials of 30 pairs between equal versions, checked after each pair."""
    random, alarms = Random(4), 0
    for _ in range(200):
        watch = Watch(Guardrail("ttft_p95", "chat"), "chat")
        watch.learn(half(Random(1)) + half(Random(2)))
        for _ in range(30):
            pair = half(random), half(random)
            watch.learn([*pair[0], *pair[1]])
            watch.see(*pair)
            if watch.evidence >= log(20):
                alarms += 1
                break
    assert alarms <= 15, "the binomial bound of 5 %"


@pytest.mark.evidence
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_equal_versions_with_few_good_requests_rarely_trip_cost_per_good(share):
    """200 trials of 40 pairs. share: of good requests. Many slices have none."""
    random, alarms = Random(8), 0

    def slices():
        made = [Seen("chat", 0, 10, n) for n in range(random.randrange(8))]
        for seen in made:
            budget = Budget(ttft=NEVER if random.random() < share else 1)
            cost = round(random.lognormvariate(8, 1))
            seen.row = row(seen.number, 0, SECOND, budget=budget, nanoseconds=cost)
        return made

    for _ in range(200):
        watch = Watch(Guardrail("cost_per_good", "chat"), "chat")
        for _ in range(40):
            watch.see(slices(), slices())
            if watch.evidence >= log(20):
                alarms += 1
                break
    assert alarms <= 15, "the binomial bound of 5 %"


def test_waits_a_fifth_longer_are_found_if_only_some_are_predictable():
    """Half of the waits that count are known to 2 %, the others to a factor of two."""
    random = Random(5)
    pairs = [(half(random), half(random, 1.2)) for _ in range(60)]
    watch = watched(pairs, [False] * len(pairs))
    by_lateness = watch._bets[0].evidence
    assert by_lateness > log(10**6), "e^2.7 if requests and pairs all count alike"
    assert watch.gain < 0
    assert len(watch.spreads) == len(watch.differences)
    assert min(watch.spreads) > 0


def test_an_allowed_loss_does_not_count_against_the_candidate():
    random = Random(6)
    pairs = [(half(random), half(random, 1.5)) for _ in range(60)]
    orders = [False] * len(pairs)
    assert watched(pairs, orders, allowed=0.6).evidence < 0
    assert watched(pairs, orders, allowed=0.05).evidence > log(180)


def test_a_shift_of_all_pairs_does_not_widen_the_spread():
    random = Random(7)
    watch = Watch(Guardrail("ttft_p95", "chat"), "chat")
    watch._scores = [random.gauss() for _ in range(40)]
    before = watch._scale
    watch._scores = [each + 3 for each in watch._scores]
    assert watch._scale == pytest.approx(before)


def test_the_wait_to_exceed_follows_the_latest_waits(monkeypatch):
    monkeypatch.setattr("headway.rollout.watch.LATEST", 100)
    watch = Watch(Guardrail("ttft_p95", "chat"), "chat")
    for seconds in (1, 2, 9):
        for n in range(200):
            seen = Seen("chat", 0, 10, n)
            seen.row = row(n, 0, seconds * SECOND)
            watch.learn([seen])
    assert len(watch._values) == 100 and watch._beyond == pytest.approx(log(9), abs=0.01)


def test_a_bin_has_the_variance_of_its_values():
    random, expected = Random(8), Expected()
    sure = [random.gauss() for _ in range(400)]
    for value in sure:
        expected.learn(0.01, value)
    assert expected.variance(0.01) == pytest.approx(pvariance(sure))
    expected.learn(9.0, 5.0)
    drawn = expected.variance(9.0)
    assert drawn == pytest.approx(pvariance(sure) * (400 / 401) * FEW / (FEW + 1))
