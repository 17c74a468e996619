"""What all rules look at, worked out once (Circumstances)."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.commands.diagnose.evidence import Evidence
from headway.commands.diagnose.missed import Missed, missed_requests
from headway.commands.diagnose.step_times import StepTimes, step_times
from headway.commands.diagnose.timeline import EmptyLine
from headway.report.formatting import duration, share

# Of a request's excess, what a cause must have taken to explain it. Not all of it: what a cause
# costs is known to a few percent, and a wait has moments in which something else held it up.
ENOUGH = 0.8


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The evidence, the requests that missed a limit, and how long steps should have taken."""

    evidence: Evidence
    missed: tuple[Missed, ...]
    times: StepTimes | None  # None: too few steps
    line: EmptyLine

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
    return Circumstances(
        evidence, missed_requests(evidence), step_times(evidence), EmptyLine(evidence.steps)
    )
