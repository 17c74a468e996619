"""Can the limit be met at all?"""

from dataclasses import dataclass

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.finding import TOO_FEW, Finding, NotKnown, Trial
from headway.commands.diagnose.missed import Missed
from headway.commands.diagnose.step_times import StepTimes
from headway.report.formatting import duration

ROOM = 3  # times the unloaded time: the limit to try, as for the demo's strictest endpoint


@dataclass(frozen=True, slots=True)
class MisSetBudget:
    """Explains a request if it would have missed its limit even alone on the machine."""

    cause: str = "mis-set budget"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        if not (times := case.times):
            return NotKnown(self.cause, f"{TOO_FEW} to know an unloaded time")
        explained = [each for each in case.missed if _floor(each, times) > _limit(each)]
        if not explained:
            return None
        each = sorted(explained, key=lambda e: _floor(e, times))[len(explained) // 2]
        lane, name = each.row.lane, each.limit
        wanted = max(1, round(ROOM * _floor(each, times) / 1e6))
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} could not have met their limit alone on the machine, "
                f"{case.when(explained)}",
                f"{lane}: {name} is {duration(_limit(each))}, and the median of them takes "
                f"{duration(_floor(each, times))} unloaded ({each.row.prompt} prompt tokens, "
                f"{each.row.cached} of them cached)",
            ),
            Trial(
                f"lanes:\n  {lane}:\n    {name}: {wanted}ms",
                f"{ROOM} times the unloaded time. Or shorter prompts, or a quicker machine: no "
                "setting makes this limit",
            ),
        )


def _limit(each: Missed) -> int:
    return {
        "queue": each.row.budget.queue,
        "ttft": each.row.budget.ttft,
        "tpot": each.row.budget.tpot,
        "e2e": each.row.budget.e2e,
        "client": each.row.budget.e2e,
    }[each.limit]


def _floor(each: Missed, times: StepTimes) -> int:
    """The time (ns) that the request takes alone by the cost model; 0 for queue and client."""
    row = each.row
    first, gap = times.alone(row.prompt - row.cached), times.next_token(row.prompt)
    if each.limit == "ttft":
        return first
    if each.limit == "tpot":
        return gap
    return first + gap * max(0, row.generated - 1) if each.limit == "e2e" else 0
