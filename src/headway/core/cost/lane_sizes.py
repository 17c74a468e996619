"""Sizes that follow the load (LaneSizes): slots of a lane, requests of a group, and windows."""

from dataclasses import dataclass

from headway.core.lane import Line
from headway.core.ledger import RequestRow, SizeChange
from headway.core.request import BY_ITSELF, NEVER, Finish

TARGET = 95  # per cent of a lane's requests that are to keep its budget
LEAST_ROUND = 8  # requests of a round, however few may run: fewer say too little
CUT = 90  # per cent of a size that are left when it is cut
STEPS = 16  # rounds in which a window grows from its low to its high, if nothing is cut
SLOTS, GROUP, WINDOW = "slots", "group", "window"


@dataclass(frozen=True, slots=True)
class _Size:
    """A size that follows the load between `low` and `high`."""

    lane: str  # empty: of all lanes
    what: str
    low: int
    now: int
    high: int
    step: int = 1  # by which the size grows


class LaneSizes:
    """Additive increase, multiplicative decrease, as Clipper (NSDI 2017) sizes its batches.

    A round is as many ended requests as may run, but at least LEAST_ROUND. After a round in which
    fewer than TARGET % kept the lane's budget, a tenth of the size is cut, at least one. After any
    other round the size grows by its step if requests wait and all of it was in use.

    For slots and groups, only requests that started count, and a request keeps the budget if it
    would have kept it without its wait. A wait is no reason to cut: with fewer slots it would be
    longer. For a window the wait counts: it is what the window costs. A request that expired before
    it had missed a limit of the lane says nothing: its caller chose a shorter time.
    """

    def __init__(self) -> None:
        self.group = 0  # requests that start together, if that follows the load; 0: the least
        self.windows: dict[str, int] = {}  # nanoseconds, by lane, of those that have changed
        self._rounds: dict[tuple[str, str], tuple[int, int]] = {}  # ended, and kept the budget

    def forget(self) -> None:
        """Start groups and windows again from their least: other policies are in force."""
        self.group, self.windows = 0, {}
        self._rounds.clear()

    def ended(self, row: RequestRow, line: Line) -> SizeChange | None:
        """Learn from a request that has ended. Returns the change of slots to make, if any."""
        share, full = line.lane.slots, line.batch >= line.slots
        if not share.follows or row.first_scheduled == NEVER:
            return None
        size = _Size(row.lane, SLOTS, share.low, line.slots, share.most)
        return self._learn(size, row, line.slots, len(line) if full else 0)

    def group_ended(
        self, row: RequestRow, least: int, most: int, waiting: int
    ) -> SizeChange | None:
        """As `ended`, for the size of groups. It grows by one only if a whole group waits."""
        now = self.group or least
        if not row.budget.is_felt_by_the_running or row.first_scheduled == NEVER:
            return None
        size = _Size("", GROUP, least, now, most)
        return self._learn(size, row, now, waiting if waiting >= now else 0)

    def window_ended(
        self, row: RequestRow, lane: str, between: tuple[int, int], *, count: int, waiting: int
    ) -> SizeChange | None:
        """As `ended`, for the window of a lane; empty: of all lanes. count: requests of a round.
        waiting: requests that a longer window would have let into the group."""
        if not row.budget.is_timed:
            return None
        low, high = between
        step = max(1, (high - low) // STEPS)
        size = _Size(lane, WINDOW, low, self.windows.get(lane, low), high, step)
        return self._learn(size, row, count, waiting)

    def _learn(self, size: _Size, row: RequestRow, count: int, wait: int) -> SizeChange | None:
        """count: requests of a round; wait: how many would use a larger size."""
        if row.finish not in (*BY_ITSELF, Finish.EXPIRED):
            return None
        key, waits_count = (size.what, size.lane), size.what == WINDOW
        if row.finish is Finish.EXPIRED and not _missed(row, waits_count=waits_count):
            return None
        ended, kept = self._rounds.get(key, (0, 0))
        ended, kept = ended + 1, kept + (row.good if waits_count else keeps(row))
        self._rounds[key] = ended, kept
        if ended < max(LEAST_ROUND, count):
            return None
        self._rounds[key] = 0, 0
        after, reason = size.now, f"{kept} of {ended} kept the budget"
        if not waits_count:
            reason += " while they ran"
        if 100 * kept < TARGET * ended:
            after = max(size.low, size.now * CUT // 100)
        elif wait:
            after, reason = min(size.high, size.now + size.step), f"{reason}, and {wait} wait"
        if after == size.now:
            return None
        return SizeChange(size.lane, size.what, size.now, after, reason, row.finished)


def keeps(row: RequestRow) -> bool:
    """Whether the request kept its lane's budget, from its start on. An expired one did not."""
    budget, began = row.budget, row.first_scheduled
    if row.finish is Finish.EXPIRED or row.finished - began > budget.e2e:
        return False
    late = row.generated > 0 and row.first_token - began > budget.ttft
    return not late and row.tpot <= budget.tpot


def _missed(row: RequestRow, *, waits_count: bool) -> bool:
    """Whether the request had missed a limit of its lane when it expired. Its first token is
    counted from its start on if waits do not count, and from its arrival if it never came."""
    budget, arrived = row.budget, row.arrived
    if row.first_token == NEVER:
        is_first_late = row.finished >= budget.first_by(arrived)
    else:
        since = arrived if waits_count else row.first_scheduled
        is_first_late = row.first_token > budget.first_by(since)
    return (
        is_first_late
        or row.finished >= budget.done_by(arrived)
        or min(row.first_scheduled, row.finished) > budget.start_by(arrived)
        or row.tpot > budget.tpot
    )
