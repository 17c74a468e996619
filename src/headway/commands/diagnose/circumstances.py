"""What all rules look at, worked out once (Circumstances)."""

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

# Of a request's excess, what a cause must have taken to explain it. Not all of it: what a cause
# costs is known to a few percent, and a wait has moments in which something else held it up.
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
        """The share of the missed requests that these are."""
        return len(explained) / len(self.missed) if self.missed else 0.0

    @staticmethod
    def explains(spent: float, each: Missed) -> bool:
        """Whether a cause that took so many nanoseconds explains that it missed its limit."""
        return spent >= ENOUGH * each.excess

    def delayed_since(self, each: Missed) -> int:
        """From when on something could delay it: since its line was last empty before it came, or
        its own first token where the limit is the time per token."""
        begin, _ = each.span
        return self.line.before(begin, self.evidence.begin) if each.waited else begin

    def when(self, rows: Sequence[Missed]) -> str:
        """Where in time these are, in words: from the first arrival to the last."""
        times = [each.row.arrived - self.evidence.begin for each in rows]
        if not times:
            return ""
        return f"between {duration(min(times))} and {duration(max(times))} of the run"

    def counted(self, rows: Sequence[Missed]) -> str:
        """How many of the missed requests these are, in words."""
        return f"{len(rows)} of {len(self.missed)} missed requests ({share(self.score(rows))})"


def circumstances(evidence: Evidence) -> Circumstances:
    """Work out what the rules share."""
    line = EmptyLine(evidence.steps) if evidence.steps else _line_of_stages(evidence)
    return Circumstances(evidence, missed_requests(evidence), step_times(evidence), line)


def _line_of_stages(evidence: Evidence) -> Line:
    """Whoever had to wait for the next step alone did not stand in a line."""
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
