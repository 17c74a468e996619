"""Bets on a fair coin are fair, whatever the differences are, and a real shift is found."""

from itertools import product
from math import exp, inf, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.rollout.betting import EFFECTS, Bets, effect_interval

differences = st.lists(st.floats(-50, 50), min_size=1, max_size=8)


def evidence(found, allowed=0.0):
    bets = Bets(allowed)
    for each in found:
        bets.see(each)
    return bets.evidence


def scaled(found, allowed=0.0):
    """Evidence where each spread follows from the differences before it, signs included."""
    bets, spread = Bets(allowed, EFFECTS), 0.3
    for each in found:
        bets.see(each, spread)
        spread = 0.05 + abs(spread + each) / 2
    return bets.evidence


@pytest.mark.parametrize("found", [evidence, scaled])
@given(sizes=differences)
def test_over_all_signs_the_mean_e_value_is_one(found, sizes):
    """This holds for any sizes. So the value is an e-value as soon as each sign is a fair coin."""
    signs = list(product((-1, 1), repeat=len(sizes)))
    values = [exp(found([s * x for s, x in zip(each, sizes, strict=True)])) for each in signs]
    assert sum(values) / len(values) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("found", [evidence, scaled])
@given(sizes=differences, allowed=st.floats(0, 1))
def test_an_allowed_loss_never_adds_evidence(found, sizes, allowed):
    assert found(sizes, allowed) <= found(sizes) + 1e-9


def test_a_known_spread_bounds_what_one_wild_pair_costs_a_bet():
    """A difference is clipped to its spread, and the logarithm of 1 - tanh(y) is above -2 y."""
    bets, plain = Bets(sizes=EFFECTS), Bets(sizes=EFFECTS)
    bets.see(-50.0, 0.5)
    plain.see(-50.0)
    for effect, lost, all_lost in zip(EFFECTS, bets.logs, plain.logs, strict=True):
        assert 0 > lost > -2 * effect / 0.5 > all_lost + 3


def test_known_spreads_narrow_the_interval():
    """Two thirds of the pairs have a small spread, the others a large one."""
    random = Random(3)
    spreads = [0.05 if n % 3 else 1.0 for n in range(90)]
    found = [0.2 + random.gauss() * each for each in spreads]
    low, high = effect_interval(found, 0.05, spreads)
    blind_low, blind_high = effect_interval(found, 0.05)
    assert 0 < low < 0.2 < high
    assert high - low < blind_high - blind_low


def test_a_false_alarm_at_any_time_is_as_rare_as_promised():
    """1,000 walks of 100 pairs, with heavy tails and sizes that resemble their neighbours'."""
    random, alarms = Random(1), 0
    for _ in range(1_000):
        bets, size = Bets(), 1.0
        for _ in range(100):
            size *= exp(random.gauss() / 2)
            bets.see(random.choice((-1, 1)) * size)
            if bets.evidence >= log(20):
                alarms += 1
                break
    assert alarms <= 65, "the binomial bound of 5 %"


def test_a_shift_is_found_and_its_interval_holds_it():
    random = Random(2)
    found = [0.3 + random.gauss() / 5 for _ in range(60)]
    assert evidence(found) > log(10**6) > 0 > evidence([-each for each in found])
    low, high = effect_interval(found, 0.05)
    assert 0 < low < 0.3 < high < 0.6
    assert effect_interval([], 0.05) == effect_interval([0.1], 0.05) == (-inf, inf)
