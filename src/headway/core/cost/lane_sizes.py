"""How many of a lane may run at once, where that follows its load (LaneSizes)."""

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
        self._rounds = dict[str, tuple[int, int]]()  # by lane: ended, and how many kept it

    def ended(self, row: RequestRow, line: Line) -> SizeChange | None:
        """Learn from a request that has ended. The change that follows, which is not made yet."""
        share, slots = line.lane.slots, line.slots
        started = row.first_scheduled != NEVER
        if not share.follows or not started or row.finish not in (*BY_ITSELF, Finish.EXPIRED):
            return None
        ended, kept = self._rounds.get(row.lane, (0, 0))
        ended, kept = ended + 1, kept + keeps(row)
        self._rounds[row.lane] = ended, kept
        if ended < max(LEAST_ROUND, slots):
            return None
        self._rounds[row.lane] = 0, 0
        of = f"{kept} of {ended} kept the budget while they ran"
        if 100 * kept < TARGET * ended:
            size, reason = max(share.low, slots * CUT // 100), of
        elif len(line) and line.batch >= slots:
            size, reason = min(share.most, slots + 1), f"{of}, and {len(line)} wait"
        else:
            return None
        if size == slots:
            return None
        return SizeChange(row.lane, "slots", slots, size, reason, row.finished)


def keeps(row: RequestRow) -> bool:
    """Whether it kept its lane's budget from its start on. One that expired did not."""
    budget, began = row.budget, row.first_scheduled
    if row.finish is Finish.EXPIRED or row.finished - began > budget.e2e:
        return False
    late = row.generated > 0 and row.first_token - began > budget.ttft
    return not late and row.tpot <= budget.tpot
