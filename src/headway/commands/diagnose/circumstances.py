"""The facts that all rules share, computed once (Circumstances)."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.commands.diagnose.evidence import Evidence
from headway.commands.diagnose.missed import Missed, missed_requests
from headway.commands.diagnose.step_times import StepTimes, step_times
from headway.commands.diagnose.timeline import EmptyLine, Line, WaitingLine
from headway.core.accounts.rules import Rule
from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.report.formatting import duration, share

# The share of a request's excess that a cause must have taken to explain it. Less than 1, because
# a cause's cost is known to a few percent only, and other things add moments to a wait.
ENOUGH = 0.8
NEXT_STEP = Rule.NEXT_STEP.stage


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The evidence, the requests that missed a limit, and how long steps should have taken."""

    evidence: Evidence
    missed: tuple[Missed, ...]
    times: StepTimes | None  # None: too few steps
    line: Line

    def score(self, explained: Sequence[Missed]) -> float:
        """These requests' share of the missed ones."""
        return len(explained) / len(self.missed) if self.missed else 0.0

    @staticmethod
    def explains(spent: float, each: Missed) -> bool:
        """Whether a cause that took `spent` nanoseconds explains why the request missed."""
        return spent >= ENOUGH * each.excess

    def delayed_since(self, each: Missed) -> int:
        """The time from which a cause could delay the request: the start of the span that counts
        against its limit; for a limit before the first token, when its line was last empty."""
        begin, _ = each.span
        return self.line.before(begin, self.evidence.begin) if each.waited else begin

    def when(self, rows: Sequence[Missed]) -> str:
        """When these requests arrived, in words: from the first arrival to the last."""
        times = [each.row.arrived - self.evidence.begin for each in rows]
        if not times:
            return ""
        return f"between {duration(min(times))} and {duration(max(times))} of the run"

    def counted(self, rows: Sequence[Missed]) -> str:
        """The number of these requests and their share of the missed ones, in words."""
        return f"{len(rows)} of {len(self.missed)} missed requests ({share(self.score(rows))})"


def circumstances(evidence: Evidence) -> Circumstances:
    """Compute what the rules share."""
    line = EmptyLine(evidence.steps) if evidence.steps else _line_of_stages(evidence)
    return Circumstances(evidence, missed_requests(evidence), step_times(evidence), line)


def _line_of_stages(evidence: Evidence) -> Line:
    """The line from the requests' stages. A wait for the next step alone is not a wait in line."""
    return WaitingLine(
        (row.arrived, _started(row)) for row in evidence.requests if _stood(evidence, row.id)
    )


def _stood(evidence: Evidence, id: str) -> bool:
    return any(
        name.startswith("queue.") and name != NEXT_STEP
        for name, spent in evidence.stages.get(id, {}).items()
        if spent
    )


def _started(row: RequestRow) -> int:
    return row.finished if row.first_scheduled == NEVER else row.first_scheduled
