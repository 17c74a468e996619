"""How many of a lane, or of a group, may run at once, where that follows the load (LaneSizes)."""

from headway.core.lane import Line
from headway.core.ledger import RequestRow, SizeChange
from headway.core.request import NEVER, Finish

TARGET = 95  # per cent of a lane's requests that are to keep its budget
LEAST_ROUND = 8  # requests, however few may run: the fewest that say something
CUT = 90  # per cent of the slots that a lane keeps
BY_ITSELF = (Finish.STOP, Finish.LENGTH, Finish.COMPUTED)


class LaneSizes:
    """Additive increase, multiplicative decrease, as Clipper (NSDI 2017) sizes its batches.

    A round is as many requests that have started and ended as may run, but at least LEAST_ROUND.
    After a round in which fewer than TARGET % kept the lane's budget, a tenth of the slots is cut,
    at least one. After another round, one is added if somebody waits and all slots were in use.

    A request keeps the budget if it would have kept it without its wait. A wait is no reason to
    cut: with fewer slots it would be longer.
    """

    def __init__(self) -> None:
        self.group = 0  # requests that start together, where that follows the load; 0: the least
        self._rounds: dict[str, tuple[int, int]] = {}  # by lane: ended, and how many kept it

    def ended(self, row: RequestRow, line: Line) -> SizeChange | None:
        """Learn from a request that has ended. The change that follows, which is not made yet."""
        share, full = line.lane.slots, line.batch >= line.slots
        if not share.follows:
            return None
        between = share.low, line.slots, share.most
        return self._learn(row.lane, "slots", row, between, len(line) if full else 0)

    def group_ended(
        self, row: RequestRow, least: int, most: int, waiting: int
    ) -> SizeChange | None:
        """As `ended`, for the size of groups. One is added if a whole group waits already."""
        size = self.group or least
        if not row.budget.is_felt_by_the_running:
            return None
        between = least, size, most
        return self._learn("", "group", row, between, waiting if waiting >= size else 0)

    def _learn(
        self, lane: str, what: str, row: RequestRow, between: tuple[int, int, int], wait: int
    ) -> SizeChange | None:
        """between: the least, present and most size; wait: how many would use one more."""
        least, size, most = between
        if row.first_scheduled == NEVER or row.finish not in (*BY_ITSELF, Finish.EXPIRED):
            return None
        ended, kept = self._rounds.get(lane, (0, 0))
        ended, kept = ended + 1, kept + keeps(row)
        self._rounds[lane] = ended, kept
        if ended < max(LEAST_ROUND, size):
            return None
        self._rounds[lane] = 0, 0
        after, reason = size, f"{kept} of {ended} kept the budget while they ran"
        if 100 * kept < TARGET * ended:
            after = max(least, size * CUT // 100)
        elif wait:
            after, reason = min(most, size + 1), f"{reason}, and {wait} wait"
        return SizeChange(lane, what, size, after, reason, row.finished) if after != size else None


def keeps(row: RequestRow) -> bool:
    """Whether it kept its lane's budget from its start on. One that expired did not."""
    budget, began = row.budget, row.first_scheduled
    if row.finish is Finish.EXPIRED or row.finished - began > budget.e2e:
        return False
    late = row.generated > 0 and row.first_token - began > budget.ttft
    return not late and row.tpot <= budget.tpot
