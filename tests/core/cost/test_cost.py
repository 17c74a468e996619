"""The price of a step: additive, never negative, and the same however a step is counted."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.batch import Batch, Row, Want
from headway.core.cost.features import NONE, Features, added, batch_features, row_features
from headway.core.cost.gathering import Gathering
from headway.core.cost.step_cost import (
    COMPUTE_BOUND,
    MEMORY_BOUND,
    Rates,
    Residuals,
    Rounding,
    StepCost,
)

COST = StepCost(
    device=Rates(step=5_000, row=700, prompt=60, read=11, pair=3, logit=90),
    pieces=((0, 10), (8, 500), (32, 200)),
    host=Rates(step=1_000, row=100, token=7),
    after=Rates(step=2_000, row=50),
    knee=8,
    residuals=(Residuals((900, 1_000, 1_300)), Residuals((950, 1_050))),
)
wants = st.sampled_from([*Want, Want.LAST | Want.PROMPT])
rows = st.builds(
    lambda number, start, length, want: Row(number, start, (1,) * length, (), want),
    st.integers(0, 99),
    st.integers(0, 500),
    st.integers(1, 60),
    wants,
)


@given(st.lists(rows, min_size=1, max_size=9))
def test_the_features_of_a_step_are_the_sum_of_its_rows(rows):
    total = NONE
    for row in rows:
        total += added(row)
    assert batch_features(Batch(1, tuple(rows))) == total


@given(st.lists(rows, min_size=1, max_size=9), rows)
def test_one_more_row_never_makes_a_step_cheaper(rows, more):
    step = batch_features(Batch(1, tuple(rows)))
    assert COST.predict(step + added(more)) >= COST.predict(step) > 0


def test_the_price_per_token_depends_on_the_number_of_tokens():
    base = COST.predict(Features())
    assert base == (5_000 + 1_000) // 1_000
    prices = [COST._tokens(tokens) for tokens in (0, 8, 9, 32, 33)]
    assert prices == [0, 80, 580, 80 + 24 * 500, 80 + 24 * 500 + 200]


def test_tokens_are_priced_as_the_executor_rounds_them():
    rounding = Rounding(least=4, digits=5)
    counts = (0, 1, 3, 5, 32, 33, 65, 68, 257, 1_000)
    assert [rounding.of(count) for count in counts] == [0, 4, 4, 5, 32, 34, 68, 68, 272, 1_024]
    cost = StepCost(pieces=((0, 1_000), (66, 3_000)), rounding=rounding)
    prices = [cost.predict(Features(tokens=count)) for count in (0, 1, 4, 64, 65, 68)]
    assert prices == [0, 4, 4, 64, 66 + 6, 66 + 6]
    assert Rounding().of(1_001) == 1_001, "by default it does not"


def test_a_step_pays_for_each_tile_of_tokens_that_it_begins():
    rounding = Rounding(tile=4)
    assert rounding.is_exact and [rounding.of(count) for count in (3, 5)] == [3, 5]
    cost = StepCost(pieces=((0, 1_000), (6, 3_000)), tile=100_000, rounding=rounding)
    prices = [cost.predict(Features(tokens=count)) for count in (0, 1, 4, 5, 8, 9)]
    assert prices == [0, 101, 104, 205, 206 + 6, 306 + 9]
    even = cost.without_tiles()
    assert not even.tile and COST.without_tiles() is COST
    for count in range(1, 40):
        more = even.predict(Features(tokens=count)) - cost.predict(Features(tokens=count))
        assert abs(more) <= 50, "half a tile"
    middles = [even.predict(Features(tokens=n)) for n in (2, 6, 10)]
    assert middles == [cost.predict(Features(tokens=n)) for n in (2, 6, 10)]


def test_pairs_count_each_query_with_the_keys_it_sees():
    assert row_features(0, 4).pairs == 1 + 2 + 3 + 4
    assert row_features(10, 2).pairs == 11 + 12
    split, whole = row_features(0, 6) + row_features(6, 4), row_features(0, 10)
    assert (split.tokens, split.pairs) == (whole.tokens, whole.pairs)
    assert split.reads == 6 + 10, "but a chunk reads again what came before it"


def test_a_step_pays_once_for_the_attention_of_all_decoding_rows():
    one, chunk = row_features(9, 1, logits=1), row_features(0, 4)
    assert [each.decodes for each in (one, one + one, one + chunk, chunk, chunk + chunk)] == [
        1, 1, 1, 0, 0,
    ]  # fmt: skip
    cost = StepCost(Rates(decode=5_000))
    assert [cost.predict(each) for each in (chunk, one + chunk, one + one)] == [0, 5, 5]


def test_a_step_pays_once_for_the_output_layer_and_only_if_it_samples():
    middle, last = row_features(0, 4), row_features(4, 4, logits=1)
    cost = StepCost(Rates(head=5_000), host=Rates(head=1_000))
    assert [cost.predict(each) for each in (middle, last, middle + last, last + last)] == [
        0, 6, 6, 6,
    ]  # fmt: skip


def test_a_step_pays_a_fixed_price_once_for_any_number_of_prompts():
    one, chunk = row_features(9, 1, logits=1), row_features(0, 4)
    cost = StepCost(Rates(prefill=5_000))
    assert [cost.predict(each) for each in (one, chunk, chunk + chunk, one + chunk)] == [
        0, 5, 5, 5,
    ]  # fmt: skip


def test_padding_and_held_slots_are_priced_as_they_are_computed():
    short = Row(1, 0, (1, 1), (), Want.LAST)
    long = Row(2, 0, (1,) * 4, (), Want.LAST)
    step = batch_features(Batch(1, (short, long), held=1, width=4))
    padded, held = row_features(0, 2, 1, padding=2), row_features(0, 4)
    assert step == padded + row_features(0, 4, 1) + held
    assert padded.pairs == 1 + 2 + 2 * 2, "padding sees what the last token sees"


def test_a_held_slot_of_one_position_reads_as_much_as_the_longest_row():
    one, two = Row(1, 5, (1,), (), Want.LAST), Row(2, 9, (1,), (), Want.LAST)
    step = batch_features(Batch(1, (one, two), held=2, width=1))
    assert step == Features(
        tokens=4, rows=4, reads=6 + 10 + 20, pairs=6 + 10 + 20, logits=2, decodes=1
    )


def test_decoding_rows_read_what_their_executor_pads_them_to():
    gathering = Gathering(block=4, at_once=5)
    assert gathering.groups([1, 1, 2, 4]) == [(0, 2), (2, 3), (3, 4)], (
        "three rows of 2 blocks are 6"
    )
    assert gathering.groups([9, 9]) == [(0, 1), (1, 2)], "one alone may need more"
    assert gathering.reads([16, 3, 4, 5]) == 2 * 4 + 8 + 16
    assert gathering.reads([]) == 0
    rows = tuple(Row(n, held - 1, (1,), (), Want.LAST) for n, held in enumerate([16, 3, 4, 5]))
    prompt = Row(9, 2, (1,) * 3, (), Want.NOTHING)
    step = Batch(1, (*rows, prompt))
    plain, padded = batch_features(step), batch_features(step, gathering)
    assert (plain.reads, padded.reads) == (28 + 5, 32 + 5), "a prompt's past is its own"
    assert padded == plain._replace(reads=32 + 5, pairs=plain.pairs + 32 - 28)


@given(st.lists(st.integers(1, 90), max_size=9), st.integers(1, 16), st.integers(1, 40))
def test_padding_reads_more_keys_but_at_most_the_longest_for_each_row(lengths, block, at_once):
    reads = Gathering(block, at_once).reads(lengths)
    assert sum(lengths) <= reads <= len(lengths) * (max(lengths, default=0) + block - 1)
    assert reads % block == 0 and Gathering(block).reads(lengths) == sum(lengths)


def test_host_time_is_a_separate_account():
    features = Features(tokens=10, rows=2)
    assert COST.on_host(features) == (1_000 + 200 + 70) // 1_000
    assert COST.behind(features) == (2_000 + 100) // 1_000
    assert COST.predict(features) == (5_000 + 1_400 + 80 + 2 * 500 + 1_270) // 1_000


def test_quantiles_use_the_residuals_of_the_steps_regime():
    small, large = Features(tokens=8, reads=90_000), Features(tokens=9, reads=90_000)
    assert (COST.regime(small), COST.regime(large)) == (MEMORY_BOUND, COMPUTE_BOUND)
    assert COST.quantile(small, 1.0) == COST.predict(small) * 1_300 // 1_000
    assert COST.quantile(large, 0.5) == COST.predict(large)
    assert [Residuals((900, 1_000, 1_300)).at(share) for share in (0, 0.25, 0.75, 1)] == [
        900,
        950,
        1_150,
        1_300,
    ]


def test_a_cost_model_without_prices_is_unknown():
    assert not StepCost().is_known and COST.is_known
    assert StepCost.of(7, 5, 3).predict(Features(tokens=2, pairs=4)) == 7 + 10 + 12
