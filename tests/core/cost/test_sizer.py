"""The price of a step while its rows are chosen is its price afterwards."""

from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from headway.core.batch import Batch, Row, Want
from headway.core.cost.estimates import Estimates
from headway.core.cost.features import batch_features
from headway.core.cost.gathering import Gathering
from headway.core.cost.sizer import Sizer
from headway.core.cost.step_cost import WHOLE, Rates, Residuals, Rounding, StepCost
from headway.core.sequences.sequence import RELEGATED, TIMED, UNTIMED

COST = StepCost(
    device=Rates(
        step=8_000_000,
        row=7_003,
        prompt=300_007,
        read=1_103,
        pair=1_307,
        logit=17_011,
        decode=1_900_009,
        prefill=400_003,
        head=409_009,
    ),
    pieces=((0, 1_000_007), (6, 2_000_011)),
    knee=9,
    rounding=Rounding(least=3, digits=2),
    residuals=(Residuals((700, 1_000, 1_800)), Residuals((800, 1_000, 1_100))),
)
PADDED = replace(COST, gathering=Gathering(3, at_once=5))
TILED = replace(COST, tile=1_500_001, rounding=Rounding(tile=4))
BOTH = Want.LAST | Want.PROMPT
rows = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from([Want.LAST, BOTH])),
    max_size=8,
)
costs = st.sampled_from([COST, PADDED, TILED])


def estimates_of(cost):
    """Estimates with a drift: the machine is slower than its model says."""
    estimates = Estimates(cost)
    estimates.learn(batch_features(batch([(3, 1, Want.LAST)])), 1_000_000)
    assert estimates.drift > WHOLE
    return estimates


def batch(rows):
    made = [Row(i, start, (0,) * length, (), w) for i, (start, length, w) in enumerate(rows)]
    return Batch(1, tuple(made))


def sized(estimates, rows, nanoseconds, sure=0.5):
    """A sizer of these rows: first the decodes, all at once, then the others one by one."""
    sizer = Sizer(estimates, nanoseconds, sure)
    plain = [start for start, length, want in rows if length == 1 and want is Want.LAST]
    sizer.decode(plain)
    for start, length, want in rows:
        if length > 1 or want is not Want.LAST:
            sizer.add(start, length, each=want is BOTH)
    return sizer


def price(estimates, rows, sure):
    features = batch_features(batch(rows), estimates.cost.gathering)
    residual = estimates.cost.residuals[estimates.cost.regime(features)]
    return estimates.predict(features) * residual.at(sure) // WHOLE


@given(costs, rows, st.sampled_from([0.5, 0.75, 1.0]))
def test_the_sizers_price_is_that_of_the_finished_step(cost, rows, sure):
    estimates = estimates_of(cost)
    assert sized(estimates, rows, 0, sure).price() == price(estimates, rows, sure)
    for i, (start, length, want) in enumerate(rows):
        rest = sized(estimates, rows[:i] + rows[i + 1 :], 0, sure)
        assert rest.price(start, length, each=want is BOTH) == price(estimates, rows, sure)


@given(costs, rows, rows, st.data())
def test_dropping_kept_rows_restores_the_price(cost, rows, kept, data):
    estimates, sizer = estimates_of(cost), sized(estimates_of(cost), rows, 0)
    for start, length, want in kept:
        sizer.keep(start, length, UNTIMED, each=want is BOTH)
    assert sizer.price() == price(estimates, rows + kept, 0.5)
    for start, length, want in data.draw(st.permutations(kept)):
        sizer.drop(start, length, each=want is BOTH)
    assert sizer.price() == price(estimates, rows, 0.5)


@given(costs, rows, st.integers(0, 30), st.integers(1, 40), st.booleans(), st.data())
def test_fit_returns_the_most_tokens_that_fit_the_time(cost, rows, start, wanted, each, data):
    estimates = estimates_of(cost)
    prices = [
        sized(estimates, rows, 0).price(start, length, each=each) for length in range(1, wanted + 1)
    ]
    time = data.draw(st.integers(min(prices) - 2, max(prices) + 2))
    fits = sized(estimates, rows, time).fit(start, wanted, each=each)
    assert fits == max([i for i, each in enumerate(prices, 1) if each <= time], default=0)
    event("all" if fits == wanted else "some" if fits else "none")
    event("a longer one costs less" if prices != sorted(prices) else "longer ones cost more")


def test_fit_returns_zero_if_no_tokens_are_wanted():
    assert Sizer(estimates_of(COST), 10**12, 0.5).fit(0, 0) == 0


def test_fit_returns_the_same_limit_however_many_tokens_are_wanted():
    estimates = estimates_of(StepCost.of(10, per_token=1_000))
    sizer = Sizer(estimates, estimates.predict(batch_features(batch([(0, 5, Want.LAST)]))), 0.5)
    assert [sizer.fit(0, wanted) for wanted in (1, 4, 5, 6, 400)] == [1, 4, 5, 5, 5]


@given(costs, rows, st.lists(st.integers(0, 30), min_size=1, max_size=9), st.data())
def test_rows_of_one_token_fit_all_together_or_not_at_all(cost, rows, starts, data):
    estimates = estimates_of(cost)
    singles = [(start, 1, Want.LAST) for start in starts]
    whole = price(estimates, [*rows, *singles], 0.5)
    time = data.draw(st.integers(whole - 2, whole + 2))
    sizer = sized(estimates, rows, time)
    fits = sizer.fit_singles(starts, TIMED)
    assert fits == (whole <= time)
    assert sizer.price() == (whole if fits else price(estimates, rows, 0.5))


def test_later_tiers_lengthen_a_step_with_timed_prompts_by_the_filler_share_only():
    estimates = estimates_of(StepCost.of(10, per_token=1_000))
    of = [estimates.predict(batch_features(batch([(0, n, Want.LAST)]))) for n in range(101)]
    sizer = Sizer(estimates, of[100], 0.5, filler=0.1)
    sizer.turn_to(UNTIMED)
    assert sizer.fit(0, 100) == 100, "nobody waits for its end"
    sizer.turn_to(TIMED)
    sizer.add(0, 50)
    sizer.turn_to(RELEGATED)
    assert sizer.fit(0, 100) == 5
    assert not sizer.fit_singles([9] * 6, UNTIMED) and sizer.fit_singles([9] * 5, UNTIMED)
    sizer.turn_to(TIMED)
    assert sizer.fit(0, 100) == 45
    sizer.turn_to(UNTIMED)
    assert sizer.fit(9, 1) == 0, "nor more than that, bit by bit"


def test_tokens_kept_for_an_untimed_lane_do_not_count_as_a_timed_prompt():
    estimates = estimates_of(StepCost.of(10, per_token=1_000))
    of = [estimates.predict(batch_features(batch([(0, n, Want.LAST)]))) for n in range(101)]
    for tier, left in ((UNTIMED, 90), (TIMED, 1)):
        sizer = Sizer(estimates, of[100], 0.5, filler=0.1)
        sizer.keep(0, 10, tier)
        sizer.turn_to(UNTIMED)
        assert sizer.fit(0, 100) == left
