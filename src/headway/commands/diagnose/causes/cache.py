"""Was the prefix cache cold for a while?"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.commands.diagnose.circumstances import Circumstances
from headway.commands.diagnose.finding import TOO_FEW, Finding, NotKnown, Trial
from headway.commands.diagnose.missed import Missed
from headway.commands.diagnose.timeline import Timeline
from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.report.formatting import duration, share

BLOCKS = 12  # blocks that a lane's requests are divided into, in time order
LEAST = 5  # requests per block, at least
WARM = 0.2  # cached share of the prompt tokens that the warmest block needs for a finding
COLD = 0.5  # of the warmest block's cached share: a block with less is cold


@dataclass(frozen=True, slots=True)
class ColdCache:
    """Explains a request if tokens that a warm cache would have had took its excess: its own, and
    those of requests that started before its first token since the line was last empty."""

    cause: str = "cold cache"

    def ask(self, case: Circumstances) -> Finding | NotKnown | None:
        """See Rule."""
        if not (times := case.times):
            return NotKnown(self.cause, f"{TOO_FEW} to know what a prompt costs")
        lanes = {row.lane for row in case.evidence.requests}
        extra, blocks = list[tuple[int, int]](), list[tuple[float, float]]()
        for lane in sorted(lanes):
            rows = [row for row in case.evidence.requests if row.lane == lane]
            found, warm_and_cold = _missing([r for r in rows if r.first_scheduled != NEVER])
            extra += [(row.first_scheduled, times.of_tokens(tokens)) for row, tokens in found]
            blocks += warm_and_cold
        if not extra:
            return None
        lost = Timeline((at, at + 1, float(spent)) for at, spent in _merged(sorted(extra)))
        explained = [each for each in case.missed if _lost(case, each, lost)]
        if not explained:
            return None
        warm, cold = max(each[0] for each in blocks), min(each[1] for each in blocks)
        spent = [each for _, each in extra]
        return Finding(
            self.cause,
            case.score(explained),
            (
                f"{case.counted(explained)} would have met their limit with a warm cache, "
                f"{case.when(explained)}",
                f"the cache had {share(warm)} of the prompts' tokens at best and {share(cold)} in "
                f"the cold part; {len(spent)} prompts took {duration(sum(spent) / len(spent))} "
                "more each",
            ),
            Trial(
                "# before traffic comes (a readiness gate, a new release)\n"
                'curl .../v1/completions -d \'{"prompt": SYSTEM_PROMPT, "max_tokens": 1}\'',
                "Warm the shared beginning before traffic comes, and keep what varies (dates, "
                "names, ids) behind it",
            ),
        )


def _lost(case: Circumstances, each: Missed, lost: Timeline) -> bool:
    if not each.waited:
        return False
    return case.explains(lost.between(case.delayed_since(each), each.span[1] + 1), each)


def _missing(
    rows: Sequence[RequestRow],
) -> tuple[list[tuple[RequestRow, int]], list[tuple[float, float]]]:
    """The requests of cold blocks, each with the tokens that only a warm cache would have had; and
    the cached shares of the warmest and the coldest block."""
    size = max(LEAST, -(-len(rows) // BLOCKS))
    ordered = sorted(rows, key=lambda row: row.first_scheduled)
    blocks = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    blocks = [block for block in blocks if len(block) >= LEAST]
    shares = [sum(r.cached for r in b) / max(1, sum(r.prompt for r in b)) for b in blocks]
    warm = max(shares, default=0.0)
    if warm < WARM:
        return [], []
    found = [
        (row, max(0, round(warm * row.prompt) - row.cached))
        for block, had in zip(blocks, shares, strict=True)
        if had < COLD * warm
        for row in block
    ]
    return found, [(warm, min(shares))]


def _merged(extra: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sum what was first scheduled at the same time, in one step."""
    merged = dict[int, int]()
    for at, spent in extra:
        merged[at] = merged.get(at, 0) + spent
    return sorted(merged.items())
