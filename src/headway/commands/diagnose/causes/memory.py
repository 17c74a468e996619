"""Did requests wait for KV memory, or lose what they had computed?"""

from dataclasses import dataclass

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.finding import Finding, NotKnown, Trial
from headway.commands.diagnose.missed import Missed
from headway.commands.diagnose.timeline import Timeline, of_steps
from headway.core.ledger import StepRow
from headway.core.request import NEVER
from headway.report.formatting import share

SCARCE = 0.05  # of the blocks: with fewer free ones hardly anybody can start
LONG = 0.9  # of the prompts are no longer than the one that must fit, too


@dataclass(frozen=True, slots=True)
class KvThrash:
    """A request is explained if it was preempted, or waited for blocks for its whole excess.

    It waits for blocks while slots are free, and too few blocks for a long prompt are.
    """

    cause: str = "KV thrash"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        evidence = case.evidence
        preemptions = sum(row.preemptions for row in evidence.requests)
        if not evidence.steps and not preemptions:
            return NotKnown(self.cause, "there are no step rows, so free blocks are not known")
        blocks = evidence.num_blocks or max((row.free_blocks for row in evidence.steps), default=0)
        slots = (evidence.policies.slots if evidence.policies else 0) or NEVER
        prompts = sorted(row.prompt for row in evidence.requests)
        need = prompts[int(LONG * len(prompts))] // evidence.block_size if prompts else 0
        least_free = max(round(SCARCE * blocks), min(need, blocks // 2))

        def scarce(row: StepRow) -> bool:
            return row.waiting > 0 and row.running < slots and row.free_blocks <= least_free

        short = of_steps(
            evidence.steps, [row.nanoseconds if scarce(row) else 0 for row in evidence.steps]
        )
        explained = [each for each in case.missed if _lost(each) or _waited(case, each, short)]
        if not explained:
            return None
        again = sum(row.recomputed for row in evidence.requests)
        computed = sum(row.tokens for row in evidence.steps)
        use = sum(row.nanoseconds for row in evidence.steps if scarce(row))
        spent = sum(row.nanoseconds for row in evidence.steps)
        least = min((row.running for row in evidence.steps if scarce(row)), default=evidence.slots)
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} were preempted or waited for blocks, "
                f"{case.when(explained)}",
                f"{preemptions} preemptions; {share(again / computed if computed else 0)} of the "
                f"tokens were computed again; blocks were short in {share(use / max(1, spent))} of "
                f"the steps' time (n = {len(evidence.steps)} steps)",
            ),
            Trial(
                f"engine:\n  slots: {max(1, least)}",
                "As many sequences as the memory holds. Or more memory: a smaller context, a "
                "shorter max_tokens, weights in fewer bits",
                sets={"slots": max(1, least)},
            ),
        )


def _lost(each: Missed) -> bool:
    return each.row.preemptions > 0 and each.limit != "client"


def _waited(case: Circumstances, each: Missed, short: Timeline) -> bool:
    spent = short.between(case.delayed_since(each), each.span[1])
    return each.waited and case.explains(spent, each)
