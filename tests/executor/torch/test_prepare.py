"""Every size of step is run once before a request needs it."""

import pytest

from headway.core.batch import Batch, Begun, Row, Want
from headway.core.cost.step_cost import Rounding
from headway.core.sampling import Sampling
from headway.executor.torch.decoder import LARGE, SMALL, row_counts
from headway.executor.torch.layers.linear import Linear
from headway.executor.torch.load import load
from headway.executor.torch.memory.memory_plan import Limits
from headway.models import EMBEDDED

TOKENS, ROWS = 70, 5


@pytest.fixture
def met(monkeypatch):
    """The (rows, outputs) of each matrix product so far."""
    seen, plain = set(), Linear.__call__

    def noting(linear, x):
        y = plain(linear, x)
        seen.add((len(x), y.shape[1]))
        return y

    monkeypatch.setattr(Linear, "__call__", noting)
    return seen


def test_row_counts_are_rounded_to_few_sizes_with_at_most_a_sixteenth_more():
    assert row_counts(40, SMALL) == [*range(1, 33), 34, 36, 38, 40]
    assert row_counts(33, LARGE) == [*range(4, 33), 34]
    assert max(SMALL.of(rows) / rows for rows in range(1, 5_000)) < 1 + 1 / 16


def step(number, rows, tokens):
    """A step of so many rows; the first has all the tokens that the others leave."""
    lengths = [tokens - rows + 1] + [1] * (rows - 1)
    asked = [
        Row(100 * number + i, 0, (7,) * length, tuple(range(1 + 6 * i, 7 + 6 * i)), Want.LAST)
        for i, length in enumerate(lengths)
    ]
    begun = tuple(Begun(row.sequence, len(row.tokens), Sampling()) for row in asked)
    return Batch(number, tuple(asked), begun)


@pytest.mark.parametrize("cached", [0, 1 << 30])  # bytes: as if there were many weights, or few
def test_after_preparation_no_step_has_a_new_size(met, monkeypatch, cached):
    monkeypatch.setattr("headway.executor.torch.decoder.CACHED", cached)
    monkeypatch.setattr("headway.executor.torch.layers.linear.kernels", lambda: None)
    executor = load(EMBEDDED, Limits(ROWS, 512, 128, 16)).executor
    executor.prepare(TOKENS, ROWS, 60.0)
    prepared = set(met)
    assert min(rows for rows, _ in met) == (1 if cached else 4)
    for number, tokens in enumerate(range(ROWS, TOKENS + 1)):
        executor.collect(executor.submit(step(number, 1 + tokens % ROWS, tokens)))
    assert met == prepared
    executor.collect(executor.submit(step(999, 1, TOKENS + 10)))
    assert met > prepared, "a size beyond those prepared is met when it comes"


def test_our_kernel_needs_no_padding_rows(monkeypatch):
    """Our kernel reads the weights once, for one row as for four."""
    monkeypatch.setattr("headway.executor.torch.decoder.CACHED", 0)
    model = load(EMBEDDED, Limits(ROWS, 512, 128, 16), "bfloat16").executor.model
    head = model.weights.head
    if head.any_rows:
        assert model.rounding.is_exact, "nor does any number of rows need preparing"
    else:
        assert model.rounding == (LARGE if head.slow_below_four else SMALL)


def test_small_steps_of_a_mixture_are_not_padded_to_four_rows(monkeypatch, goldens):
    monkeypatch.setattr("headway.executor.torch.decoder.CACHED", 0)
    found = [
        load(goldens[each].folder, Limits(ROWS)).executor for each in ("mistral-gqa", "mixtral")
    ]
    assert [executor.model.rounding for executor in found] == [LARGE, SMALL]


def test_preparation_ends_when_its_time_is_over(met, monkeypatch):
    monkeypatch.setattr("headway.executor.torch.layers.linear.kernels", lambda: None)
    executor = load(EMBEDDED, Limits(ROWS, 512, 128, 16)).executor
    executor.prepare(TOKENS, ROWS, -1.0)
    assert not met


@pytest.mark.parametrize("context", [40, 128])  # not of whole blocks; fewer than the model's
def test_preparation_without_rounding_works_for_any_context_length(context):
    executor = load(EMBEDDED, Limits(ROWS, 512, context, 16)).executor
    executor.model.rounding = Rounding()
    executor.prepare(TOKENS, ROWS, 60.0)
    row = Row(1, 0, (7,) * 30, (1, 2), Want.LAST)
    assert executor.collect(executor.submit(Batch(1, (row,), (Begun(1, 30, Sampling()),)))).tokens


def test_preparation_stays_within_a_context_of_a_few_tokens():
    executor = load(EMBEDDED, Limits(ROWS, 512, context=4, block_size=1)).executor
    executor.model.rounding = Rounding()
    executor.prepare(TOKENS, ROWS, 60.0)
    row = Row(1, 0, (7,) * 3, (1, 2, 3), Want.LAST)
    assert executor.collect(executor.submit(Batch(1, (row,), (Begun(1, 3, Sampling()),)))).tokens
