"""Device time: every nanosecond is in one account of one minute, whatever engines do."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.lane import Budget, Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.load import LaneLoad, Load
from headway.core.request import Finish
from headway.server.ledger import device_time
from headway.server.ledger.device_time import DeviceTime, pieces
from headway.store.ledger.flush import MINUTE, Account, MinuteKey

EPOCH = 1_800_000_000 * 10**9
LOAD = Load(lanes={"chat": LaneLoad(Lane("chat"), 0, 0, batch=2)})


def step(began, nanoseconds, waste=0):
    return StepRow(1, began, nanoseconds, waste, 2, 8, 2, 0, 0, 2, 0, 9)


def ended(nanoseconds):
    times = (0, 0, 0, 0, 0)
    return RequestRow("a", "chat", Budget(), Finish.STOP, *times, 1, 1, 0, 0, 0, nanoseconds)


def sums(parts):
    found = dict.fromkeys(Account, 0)
    for key, part in parts.items():
        found[key.account] += part.nanoseconds
    return {str(account): ns for account, ns in found.items() if ns}


def test_a_step_across_the_end_of_a_minute_is_divided():
    assert list(pieces(MINUTE - 5, 2 * MINUTE + 1)) == [
        *((MINUTE - 5, 5), (MINUTE, MINUTE), (2 * MINUTE, 1))
    ]
    device = DeviceTime(0)
    device.begin(MINUTE - 10)
    device.rows([step(MINUTE - 6, 12, waste=3)], [], LOAD)
    parts, total, open = device.take()
    assert (total, open) == (16, 9)
    assert parts[MinuteKey(0, Account.IDLE)].nanoseconds == 4
    assert [parts[MinuteKey(m, Account.WASTE)].nanoseconds for m in (0, 1)] == [1, 2]
    assert [parts[MinuteKey(m, Account.OPEN)].nanoseconds for m in (0, 1)] == [5, 4]
    lane = parts[MinuteKey(1, Account.REQUESTS, "chat")]
    assert (lane.steps, lane.rows) == (1, 2)


def test_a_share_is_open_until_its_row_is_kept():
    device = DeviceTime(0)
    device.begin(0)
    device.rows([step(0, 100)], [ended(60)], LOAD)
    parts, _, open = device.take()
    assert open == 100 and sums(parts) == {"open": 100}, "no row is kept yet"
    assert device.keep(60, "chat") == 0
    parts, total, open = device.take()
    assert (total, open) == (0, -60) and sums(parts) == {"open": -60, "requests": 60}


def test_open_time_of_requests_running_when_an_engine_fails_is_unrecorded():
    device = DeviceTime(0)
    device.begin(0)
    device.rows([step(0, 100)], [ended(60)], LOAD)
    device.begin(150)  # the next engine
    assert sums(device.take()[0]) == {"open": 60, "unrecorded": 90}
    device.drop(60)
    assert sums(device.take()[0]) == {"open": -60, "unrecorded": 60}


def test_idle_time_that_a_later_step_overlaps_is_taken_back():
    device = DeviceTime(0)
    device.begin(0)
    device.idle(50)
    device.rows([step(40, 20)], [], LOAD)
    device.idle(10)
    assert sums(device.take()[0]) == {"idle": 40, "open": 20} and device.until == 60


moves = st.lists(
    st.tuples(
        st.sampled_from(["step", "step", "end", "keep", "drop", "idle", "fail", "take"]),
        st.integers(0, 2 * MINUTE),
        st.integers(0, 10**9),
    ),
    max_size=30,
)


@given(moves, st.sampled_from([3, 20_000]))
def test_accounts_sum_to_the_time_that_has_passed(moves, most):
    device, kept = DeviceTime(EPOCH), device_time.MOST_PARTS
    device_time.MOST_PARTS = most
    device.begin(EPOCH)
    now = total = 0
    open, over = 0, []
    try:
        for what, gap, size in moves:
            if what == "step":
                now += gap + size
                device.rows([step(now - size, size, size // 3)] if size else [], [], LOAD)
                open += size - size // 3
            elif what == "end":
                over.append(share := min(open, size))
                open -= share
                device.rows([], [ended(share)], LOAD)
            elif what == "keep" and over:
                device.keep(over.pop(), "chat")
            elif what == "drop" and over:
                device.drop(over.pop())
            elif what == "idle":
                now += gap
                device.idle(EPOCH + now)
            elif what == "fail":
                now += gap
                device.begin(EPOCH + now)
                open = 0
            else:
                total += device.take()[1]
        total += device.take()[1]
    finally:
        device_time.MOST_PARTS = kept
    assert total == device.until - EPOCH and device._open == open + sum(over)
