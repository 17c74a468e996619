"""The rows that a run leaves (Outcome)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from headway.core.ledger import RequestRow, SizeChange, StepRow
from headway.core.request import NEVER, Request
from headway.core.scheduler import Scheduler
from headway.runs.remote.client_row import ClientRow


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rows of a run. Times are nanoseconds from its beginning."""

    offered: dict[str, int]  # requests, by lane
    requests: tuple[RequestRow, ...]
    steps: tuple[StepRow, ...]
    nanoseconds: int  # from the beginning to the end of the last step
    complete: bool  # False: the run was interrupted, and unfinished requests have no row
    client: tuple[ClientRow, ...] = ()  # of a run against a server: one per row of `requests`
    changes: tuple[SizeChange, ...] = ()  # of sizes that follow the load, including the warm-up
    begin: int = 0  # the end of the warm-up, if that is left out
    before: tuple[RequestRow, ...] = ()  # requests of the warm-up, if that is left out

    @property
    def ended(self) -> tuple[RequestRow, ...]:
        """The requests that ended after the warm-up, whenever they arrived.

        All figures per second, per step or per nanosecond are about these requests.
        """
        rows = (*self.before, *self.requests)
        return tuple(row for row in rows if row.finished >= self.begin)


def outcome_of(scheduler: Scheduler, requests: Iterable[Request], zero: int) -> Outcome:
    """The outcome by a scheduler's ledger. requests: those offered. zero: the run's beginning."""
    steps = tuple(row._replace(began=row.began - zero) for row in scheduler.ledger.steps)
    counts = Counter(request.lane for request in requests)
    return Outcome(
        offered={lane.name: counts[lane.name] for lane in scheduler.settings.lanes},
        requests=tuple(counted_from(zero, row) for row in scheduler.ledger.requests),
        steps=steps,
        nanoseconds=max((row.began + row.nanoseconds for row in steps), default=0),
        complete=scheduler.finished,
        changes=tuple(replace(each, at=each.at - zero) for each in scheduler.ledger.changes),
    )


def counted_from(zero: int, row: RequestRow) -> RequestRow:
    """The row with its times counted from `zero`; NEVER stays NEVER."""

    def since(time: int) -> int:
        return time if time == NEVER else time - zero

    return replace(
        row,
        arrived=since(row.arrived),
        first_scheduled=since(row.first_scheduled),
        first_token=since(row.first_token),
        last_token=since(row.last_token),
        finished=since(row.finished),
        promised_first=since(row.promised_first),
        promised_end=since(row.promised_end),
    )
