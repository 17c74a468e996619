"""The differences of two reports, as JSON."""

import json
from math import inf

import pytest

from headway.core.request import NEVER
from headway.figures.intervals.block_bootstrap import Interval
from headway.figures.intervals.difference import Difference
from headway.report.difference.pairing import PairedLane, Pairing


@pytest.mark.parametrize(
    "values, interval, difference, ends",
    [
        ((5, NEVER), (3, inf), "later", [3, "later"]),
        ((NEVER, 5), (-inf, 3), "earlier", ["earlier", 3]),
        ((NEVER, 5), (-inf, inf), "earlier", ["earlier", "later"]),
        ((NEVER, NEVER), (0.0, 0.0), 0.0, [0.0, 0.0]),
        ((5, 9), (-1, 8), 4, [-1, 8]),
    ],
)
def test_an_infinite_difference_keeps_its_sign(values, interval, difference, ends):
    change = Difference("TTFT p95", (100, 100), *values, Interval(*interval), False)
    lane = PairedLane("static", "chat", True, (change,))
    plain = json.loads(json.dumps(Pairing(("a", "b"), (lane,), {}, (), ()).plain))
    (found,) = plain["lanes"][0]["differences"]
    assert found["difference"] == difference and found["interval"] == ends
    assert found["values"] == ["never" if value == NEVER else value for value in values]
