"""Numbers for people: no exponents, and no 0 for what is not 0."""

import pytest

from headway.report.formatting import figures, per_second


@pytest.mark.parametrize(
    "value, count, said",
    [
        (0.0, 3, "0"),
        (0.00203, 3, "0.00203"),
        (0.0000123, 3, "0.0000123"),
        (1.5, 3, "1.5"),
        (20.0, 4, "20"),
        (999.4, 3, "999"),
        (999.6, 3, "1,000"),
        (1_534.2, 3, "1,534"),
        (200_000.0, 4, "200,000"),
        (float("inf"), 3, "inf"),
        (float("nan"), 3, "nan"),
    ],
)
def test_numbers_have_no_exponent(value, count, said):
    assert figures(value, count) == said


@pytest.mark.parametrize(
    "value, decimals, said",
    [
        (0.0, 2, "0.00"),
        (0.002, 2, "0.002"),
        (0.0123, 2, "0.01"),
        (0.002, 1, "0.002"),
        (0.05, 1, "0.05"),
        (33.33, 1, "33.3"),
    ],
)
def test_only_no_rate_at_all_reads_as_0(value, decimals, said):
    assert per_second(value, decimals) == said
