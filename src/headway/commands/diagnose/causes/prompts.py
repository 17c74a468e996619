"""Did requests wait while other requests' long prompts were computed?"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.finding import NO_STEPS, STRATEGY, Finding, NotKnown, Trial
from headway.commands.diagnose.missed import Missed
from headway.commands.diagnose.step_times import StepTimes
from headway.commands.diagnose.timeline import of_steps
from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.report.formatting import duration

CHUNKS = (32, 512)  # tokens: the smallest and the largest chunk to suggest
BESIDE = 1.5  # times a step with one row: the time left to the decode rows beside a chunk
CONTEXT = 1_024  # tokens, of that row
LONG_WAIT = 0.5  # of the tightest TTFT or queue limit: a prompt that takes longer is long


@dataclass(frozen=True, slots=True)
class LongPromptsBlocking:
    """Explains a request if the prompts of other requests took its excess.

    For a TPOT or E2E limit, the steps count whose prompts took longer than the tightest TPOT limit.
    For a limit before the first token, the time for long prompts counts since the line was last
    empty; a long prompt itself is not explained.
    """

    cause: str = "long prompts blocking"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        if not case.evidence.steps:
            return NotKnown(self.cause, NO_STEPS)
        if not (times := case.times):
            return NotKnown(self.cause, "there are too few step rows to know what a prompt costs")
        long, limit = _long(case, times), _tightest(case)
        in_waits = of_steps(case.evidence.steps, _of_long_prompts(case, times, long))
        stalls = [spent if spent > limit else 0 for spent in times.prompt]
        in_gaps = of_steps(case.evidence.steps, stalls)
        explained, own = list[Missed](), {row.id for row in long}
        for each in case.missed:
            if each.limit == "client" or (each.waited and each.row.id in own):
                continue
            blocked, end = in_waits if each.waited else in_gaps, each.span[1]
            if case.explains(blocked.between(case.delayed_since(each), end), each):
                explained.append(each)
        if not explained:
            return None
        chunk = _chunk(times, limit)
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} lost their excess to prompts of others, "
                f"{case.when(explained)}",
                _measured(times, long, [spent for spent in stalls if spent]),
            ),
            Trial(
                f"{STRATEGY}    chunk: {chunk}",
                "A step computes part of a prompt, so others get their tokens in between. Long "
                "prompts take longer themselves",
                sets={"chunk": chunk, "step_tokens": case.evidence.slots + chunk},
            ),
        )


def _chunk(times: StepTimes, limit: int) -> int:
    """The chunk (prompt tokens) that leaves room for a step's decode rows (Sarathi-Serve, OSDI
    2024): the largest halving of CHUNKS' upper end, and not below its lower end."""
    least, chunk = CHUNKS
    room = limit - BESIDE * times.next_token(CONTEXT)
    while chunk > least and times.of_tokens(chunk) > room:
        chunk //= 2
    return chunk


def _measured(times: StepTimes, long: Sequence[RequestRow], stalls: Sequence[int]) -> str:
    said = list[str]()
    if stalls:
        middle = sorted(stalls)[len(stalls) // 2]
        said.append(
            f"prompts held {len(stalls)} of {len(times.prompt)} steps for longer than the tightest "
            f"TPOT limit, {duration(middle)} in the median"
        )
    if long:
        tokens = sorted(row.prompt - row.cached for row in long)[len(long) // 2]
        said.append(
            f"{len(long)} prompts are long: {tokens} tokens in the median, which take "
            f"{duration(times.alone(tokens))} alone"
        )
    return "; ".join(said)


def _tightest(case: Circumstances) -> int:
    """The tightest TPOT limit of all lanes: a step whose prompts take longer breaks it alone."""
    return min([lane.budget.tpot for lane in case.evidence.lanes.values()], default=NEVER)


def _long(case: Circumstances, times: StepTimes) -> list[RequestRow]:
    """The requests whose prompts take over LONG_WAIT of the tightest TTFT or queue limit."""
    budgets = [lane.budget for lane in case.evidence.lanes.values()]
    limits = [min(budget.ttft, budget.queue) for budget in budgets]
    least = min([limit for limit in limits if limit != NEVER], default=NEVER)
    return [
        row
        for row in case.evidence.requests
        if row.first_scheduled != NEVER
        and times.of_tokens(row.prompt - row.cached) > LONG_WAIT * least
    ]


def _of_long_prompts(
    case: Circumstances, times: StepTimes, long: Sequence[RequestRow]
) -> list[float]:
    """For each step: nanoseconds for the prompt tokens of long prompts."""
    steps = case.evidence.steps
    begins = [row.began for row in steps]
    tokens = [row.tokens - row.decodes for row in steps]
    left = [float(count) for count in tokens]  # prompt tokens that no long prompt has claimed
    for request in long:
        until = request.finished if request.first_token == NEVER else request.first_token
        first, last = bisect_left(begins, request.first_scheduled), bisect_left(begins, until)
        mine = range(first, last)
        need = request.prompt - request.cached
        offered = sum(left[at] for at in mine) or 1.0
        for at in mine:
            left[at] -= min(left[at], need * left[at] / offered)
    return [
        spent * (1 - rest / all_) if all_ else 0.0
        for spent, rest, all_ in zip(times.prompt, left, tokens, strict=True)
    ]
