"""The figures of the engine (EngineFigures): throughput, use and waste."""

from dataclasses import asdict, dataclass
from typing import Any

from headway.core.request import Finish
from headway.runs.outcome import Outcome

SERVED = (Finish.STOP, Finish.LENGTH, Finish.COMPUTED)
FAILED = (Finish.UNSATISFIABLE, Finish.ERROR)


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """The figures of the engine under one strategy."""

    seconds: float  # from the end of the warm-up to the end of the last step
    served: int  # requests that ended by themselves
    refused: int  # too long for the engine, or the lane was full
    failed: int
    unfinished: int  # cancelled, expired, or unfinished at the end of the run
    ended: int  # requests that ended in these seconds, with any arrival time and any finish
    requests_per_second: float  # the served ones among `ended`
    tokens_per_second: float  # of answers, without discarded tokens
    slots: float  # slots that computed for a request: mean weighted by step time
    busy: float  # share of the seconds in which a step ran
    held: float  # share of the computed tokens spent on finished slots
    padding: float  # share of the computed tokens spent on padding
    discarded: float  # share of the computed tokens sampled past an answer's end
    recomputed: float  # share of the computed tokens computed again after a preemption
    cached: float  # share of the served prompts' tokens found in the prefix cache
    preemptions: int
    free_mean: float  # KV blocks: mean weighted by step time
    free_least: int
    unserved: int  # offered requests that were refused, failed or unfinished

    @property
    def waste(self) -> float:
        """Share of the computed tokens that were padding or for finished slots."""
        return self.held + self.padding

    def kv_mean(self, blocks: int) -> float:
        """Share of the KV blocks in use, in the mean; 0 if no step was counted. blocks: all."""
        return 1 - self.free_mean / blocks if self.busy else 0.0

    def kv_peak(self, blocks: int) -> float:
        """As `kv_mean`, at most."""
        return 1 - self.free_least / blocks if self.busy else 0.0

    @property
    def plain(self) -> dict[str, Any]:
        """The figures as a report's JSON has them."""
        return asdict(self)


def engine_figures(outcome: Outcome) -> EngineFigures:
    """Throughput, use and waste of the engine in a run, over all lanes."""
    steps, ended = outcome.steps, outcome.ended
    served = [row for row in outcome.requests if row.finish in SERVED]
    refused = sum(row.finish is Finish.REFUSED for row in outcome.requests)
    failed = sum(row.finish in FAILED for row in outcome.requests)
    unserved = sum(outcome.offered.values()) - len(served)
    seconds = outcome.nanoseconds / 1e9
    spent = sum(row.nanoseconds for row in steps)
    computed = sum(row.tokens + row.waste_tokens for row in steps)
    return EngineFigures(
        seconds=seconds,
        served=len(served),
        refused=refused,
        failed=failed,
        unfinished=unserved - refused - failed,
        ended=len(ended),
        requests_per_second=_share(sum(row.finish in SERVED for row in ended), seconds),
        tokens_per_second=_share(answered_tokens(outcome), seconds),
        slots=_share(sum(row.rows * row.nanoseconds for row in steps), spent),
        busy=_share(spent, outcome.nanoseconds),
        held=_share(sum(row.held_tokens for row in steps), computed),
        padding=_share(sum(row.padding_tokens for row in steps), computed),
        discarded=_share(sum(row.discarded for row in ended), computed),
        recomputed=_share(sum(row.recomputed for row in ended), computed),
        cached=_share(sum(row.cached for row in served), sum(row.prompt for row in served)),
        preemptions=sum(row.preemptions for row in outcome.requests),
        free_mean=_share(sum(row.free_blocks * row.nanoseconds for row in steps), spent),
        free_least=min((row.free_blocks for row in steps), default=0),
        unserved=unserved,
    )


def answered_tokens(outcome: Outcome) -> int:
    """Tokens of all answers that ended after the warm-up."""
    return sum(row.generated for row in outcome.ended)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
