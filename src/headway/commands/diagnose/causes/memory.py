"""Did requests wait for KV blocks, or lose computed KV to preemption?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.evidence import Evidence
from headway.commands.diagnose.finding import Finding, NotKnown, Trial
from headway.commands.diagnose.missed import Missed
from headway.commands.diagnose.timeline import of_steps
from headway.core.request import NEVER
from headway.report.formatting import duration, share
from headway.store.ledger.flush import MINUTE

SCARCE = 0.05  # share of the blocks: with fewer free ones, hardly any request can start
FLOOR = 0.25  # share of the slots: with fewer, more is lost than a lack of blocks can cost
LONG = 0.9  # blocks are scarce if the prompt at this quantile does not fit
STAGES = ("queue.blocks", "queue.order", "queue.preempting", "preempted")  # of a wait for blocks


@dataclass(frozen=True, slots=True)
class KvThrash:
    """Explains a request if it was preempted, or waited for blocks for its excess.

    A request waits for blocks while slots are free but too few blocks for a long prompt are.
    Without step rows, the request's stages say what it waited for.
    """

    cause: str = "KV thrash"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        evidence = case.evidence
        preemptions = sum(row.preemptions for row in evidence.requests)
        if not (evidence.steps or evidence.stages or preemptions):
            return NotKnown(self.cause, "there are no step rows, so free blocks are not known")
        short = _by_steps(case) if evidence.steps else _by_stages(evidence)
        explained = [
            each
            for each in case.missed
            if _lost(each) or (each.waited and case.explains(short.held(each), each))
        ]
        if not explained:
            return None
        slots = _slots(evidence, short.fitted(explained))
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} were preempted or waited for blocks, "
                f"{case.when(explained)}",
                f"{preemptions} preemptions; {short.words}",
            ),
            Trial(
                f"engine:\n  slots: {slots}",
                "As many sequences as the memory holds. Or more memory: a smaller context, a "
                "shorter max_tokens, weights in fewer bits",
                sets={"slots": slots},
            ),
        )


def _slots(evidence: Evidence, fitted: float) -> int:
    """Fewer slots than there are, and not below FLOOR of them."""
    least = max(1, round(FLOOR * evidence.slots))
    return max(least, min(ceil(fitted), evidence.slots - 1))


@dataclass(frozen=True, slots=True)
class Shortage:
    """A shortage of blocks, as the source shows it."""

    held: Callable[[Missed], float]  # nanoseconds for which it delayed a request
    words: str
    # How many sequences the memory held in the mean while blocks were short, from the requests that
    # the shortage delayed.
    fitted: Callable[[Sequence[Missed]], float]


def _by_steps(case: Circumstances) -> Shortage:
    evidence, steps = case.evidence, case.evidence.steps
    blocks = evidence.num_blocks or max((row.free_blocks for row in steps), default=0)
    slots = (evidence.policies.slots if evidence.policies else 0) or NEVER
    prompts = sorted(row.prompt for row in evidence.requests)
    need = prompts[int(LONG * len(prompts))] // evidence.block_size if prompts else 0
    least_free = max(round(SCARCE * blocks), min(need, blocks // 2))
    scarce = [
        row.waiting > 0 and row.running < slots and row.free_blocks <= least_free for row in steps
    ]
    times = [row.nanoseconds if flag else 0 for row, flag in zip(steps, scarce, strict=True)]
    short = of_steps(steps, times)
    again, computed = _recomputed(evidence), sum(row.tokens for row in steps)
    spent = sum(row.nanoseconds for row in steps)
    return Shortage(
        lambda each: short.between(case.delayed_since(each), each.span[1]),
        f"{share(again / computed if computed else 0)} of the tokens were computed again; blocks "
        f"were short in {share(sum(times) / max(1, spent))} of the steps' time (n = {len(steps)} "
        "steps)",
        lambda _: _mean_running(evidence, times),
    )


def _by_stages(evidence: Evidence) -> Shortage:
    waited = sorted(filter(None, [evidence.spent(r.id, *STAGES) for r in evidence.requests]))
    middle = waited[len(waited) // 2] if waited else 0
    again = _recomputed(evidence)
    computed = sum(r.prompt - r.cached + r.generated + r.recomputed for r in evidence.requests)
    return Shortage(
        lambda each: evidence.spent(each.row.id, *STAGES),
        f"{share(again / computed if computed else 0)} of the tokens were computed again; "
        f"{len(waited)} of {len(evidence.requests)} requests waited for blocks, {duration(middle)} "
        "in the median",
        lambda explained: _mean_batch(evidence, explained),
    )


def _mean_running(evidence: Evidence, times: Sequence[int]) -> float:
    """The running sequences in the mean over these nanoseconds of each step."""
    spent = sum(times)
    ran = sum(row.running * time for row, time in zip(evidence.steps, times, strict=True))
    return ran / spent if spent else float(evidence.slots)


def _mean_batch(evidence: Evidence, explained: Sequence[Missed]) -> float:
    """The rows per step in the mean over the minutes in which these requests waited or ran."""
    rows = [each.row for each in explained]
    spans = [range(row.arrived // MINUTE, row.finished // MINUTE + 1) for row in rows]
    numbers = {number for span in spans for number in span}
    during = [each for each in evidence.minutes if each.number in numbers]
    steps = sum(each.steps for each in during)
    return sum(each.rows for each in during) / steps if steps else float(evidence.slots)


def _recomputed(evidence: Evidence) -> int:
    return sum(row.recomputed for row in evidence.requests)


def _lost(each: Missed) -> bool:
    return each.row.preemptions > 0 and each.limit != "client"
