"""The ring of the live page: bounded, and right about what it counts."""

from hypothesis import example, given
from hypothesis import strategies as st

from headway.core.lane import Budget
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER, Finish
from headway.figures.percentile import percentile
from headway.server.dashboard.series import KEPT, PART, LanePart, Series, SlidingSum, of_lane
from headway.server.dashboard.time_counts import TimeCounts, merged

NO_LIMIT = Budget()
TIMES = st.lists(st.integers(0, 10**12), max_size=300)


def step(number, began, rows=4, nanoseconds=10, free=90):
    return StepRow(number, began, nanoseconds, 0, rows, rows, rows, 0, 0, 7, 3, free)


def row(finished, ttft=5, finish=Finish.LENGTH, budget=NO_LIMIT):
    """A request of lane voice that arrived at 0. A ttft of NEVER: it had no token."""
    started = ttft != NEVER
    times = [0, 0, ttft, finished] if started else [0, NEVER, NEVER, NEVER]
    return RequestRow("r", "voice", budget, finish, *times, finished, 1, 1, 0, 0, 0, 0)


def counted(values):
    counts = TimeCounts()
    for value in values:
        counts.see(value)
    return counts


@given(TIMES, st.sampled_from([50, 95]))
@example([0] * 100, 95)
def test_percentiles_are_those_of_the_raw_values_to_within_a_bucket(values, percent):
    exact, found = percentile(values, percent), counted(values).percentile(percent)
    assert (found is None) == (exact is None)
    if exact is not None:
        assert abs(found - exact) <= exact / 32


@given(TIMES, TIMES)
def test_counts_of_two_parts_add_up_to_those_of_both(first, second):
    assert merged([counted(first), counted(second)]) == counted(first + second)


@given(
    st.lists(st.tuples(st.integers(0, 3), TIMES), max_size=30),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20),
)
def test_a_sliding_sum_equals_the_sum_of_the_parts_in_its_window(parts, moves):
    made = [LanePart(ended=k, good=k, queue=counted(q), ttft=counted(q[:3])) for k, q in parts]
    sliding, first, last = SlidingSum(), 0, 0
    for left, came in moves:
        last = min(len(made), last + came)
        first = min(last, first + left)
        found, wanted = sliding.of(made[first:last]), LanePart()
        for part in made[first:last]:
            wanted.add(part)
        assert found == wanted
        assert sliding.of(made[first:last]) == wanted, "looking changes nothing"
        if last > first:
            made[last - 1].add(LanePart(ended=1, ttft=counted([7])))  # the last part may grow


@given(st.integers(0, 2**62))
def test_a_time_is_less_than_a_32nd_above_the_start_of_its_bucket(value):
    (low,) = counted([value])
    assert low <= value < max(low + 1, low * 33 / 32 + 1)


def test_the_ring_keeps_a_fixed_number_of_parts_and_drops_the_oldest():
    series = Series()
    for k in range(KEPT + 50):
        series.steps([step(k, k * PART)], 100)
    kept = series.between(0, 10**18)
    assert len(kept) == KEPT and kept[-1].number == KEPT + 49
    assert [part.number for part in series.between(60 * PART, 63 * PART)] == [60, 61, 62]


def test_no_part_is_kept_for_time_in_which_nothing_happened():
    series = Series()
    series.steps([step(1, 3 * PART), step(2, 500 * PART)], 100)
    assert [part.number for part in series.between(PART, 10**18)] == [3, 500]


def test_steps_are_weighed_by_their_time():
    series = Series()
    series.steps([step(1, PART, rows=2, nanoseconds=30, free=80)], 100)
    series.steps([step(2, PART + 50, rows=8, nanoseconds=10)], 100)
    (part,) = series.between(PART, 2 * PART)
    assert (part.steps, part.step_ns, part.row_ns) == (2, 40, 2 * 30 + 8 * 10)
    assert (part.running, part.waiting, part.blocks) == (7, 3, 20)


def test_a_row_that_comes_late_is_counted_in_the_latest_part():
    series = Series()
    series.steps([step(1, 9 * PART)], 100)
    series.ended(row(2 * PART), refused=False)
    (mine,) = of_lane(series.between(9 * PART, 10 * PART), "voice")
    assert mine.ended == 1


def test_a_request_without_a_first_token_adds_no_ttft_and_no_queue_wait():
    series = Series()
    series.ended(row(PART, ttft=NEVER, finish=Finish.REFUSED), refused=True)
    series.ended(row(PART), refused=False)
    series.ended(row(PART, budget=Budget(ttft=1)), refused=False)
    (mine,) = of_lane(series.between(0, 10**18), "voice")
    assert (mine.ended, mine.good, mine.refused) == (3, 1, 1)
    assert mine.ttft.total() == mine.queue.total() == 2


def test_a_cancelled_request_is_judged_only_if_it_was_late_already():
    series = Series()
    stopped, limit = Finish.CANCELLED, Budget(ttft=10)
    series.ended(row(PART, ttft=5, finish=stopped, budget=limit), refused=False)
    series.ended(row(PART, finish=Finish.UNSATISFIABLE), refused=False)
    (mine,) = of_lane(series.between(0, 10**18), "voice")
    assert (mine.ended, mine.good, mine.ttft.total()) == (0, 0, 2)
    series.ended(row(PART, ttft=11, finish=stopped, budget=limit), refused=False)  # late already
    series.ended(row(PART, ttft=NEVER, finish=stopped, budget=limit), refused=False)
    assert (mine.ended, mine.good) == (2, 0)
