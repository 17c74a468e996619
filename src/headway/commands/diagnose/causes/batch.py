"""Did tokens come late because too many sequences shared each step?"""

from dataclasses import dataclass

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.finding import NO_STEPS, Finding, NotKnown, Trial
from headway.commands.diagnose.timeline import of_steps
from headway.core.request import NEVER
from headway.report.formatting import duration


@dataclass(frozen=True, slots=True)
class BatchTooLarge:
    """Explains a request if, over its steps, the other decode rows took its excess. Time for
    prompts is not counted."""

    cause: str = "batch too large"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        if not case.evidence.steps:
            return NotKnown(self.cause, NO_STEPS)
        if not (times := case.times):
            return NotKnown(self.cause, "there are too few step rows to know what a row costs")
        steps = case.evidence.steps
        saved = of_steps(steps, times.crowd)
        late = [each for each in case.missed if each.limit in ("tpot", "e2e")]
        explained = [each for each in late if case.explains(saved.between(*each.span), each)]
        if not explained:
            return None
        during = [
            row
            for row in steps
            if explained[0].row.arrived <= row.began <= max(e.row.finished for e in explained)
        ]
        rows = sorted(row.rows for row in during)
        spent = sorted(row.nanoseconds for row in during)
        middle = rows[len(rows) // 2]
        least = min(explained, key=lambda each: each.row.budget.tpot).row
        limit = least.budget.tpot if least.budget.tpot != NEVER else spent[len(spent) // 2] // 2
        slots = times.rows_within(limit, least.prompt + least.generated, max(1, middle - 1))
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} lost their excess to the rows of others, "
                f"{case.when(explained)}",
                f"meanwhile a step had {middle} rows and took {duration(spent[len(spent) // 2])} "
                f"in the median (n = {len(during)} steps); the slots are {case.evidence.slots}",
            ),
            Trial(
                f"engine:\n  slots: {slots}",
                "As many sequences as a step within the limit has room for: tokens come sooner, "
                "and more requests wait",
                sets={"slots": slots},
            ),
        )
