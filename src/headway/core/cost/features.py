"""What a step computes and reads, counted (Features); what its price depends on."""

from dataclasses import dataclass

from headway.core.batch import Batch, Row, Want
from headway.core.cost.gathering import UNPADDED, Gathering

LAST = Want.LAST


@dataclass(frozen=True, slots=True)
class Features:
    """Of a row, or of a step: they add up, but for `decodes`, which a step has once or not."""

    tokens: int = 0  # positions computed, wasted ones too
    rows: int = 0  # sequences and held slots in it
    prompts: int = 0  # of them, with more than one position: each has an attention of its own
    reads: int = 0  # keys that are read from the KV memory, padding too
    pairs: int = 0  # (query, key) pairs: length x (start + length / 2) of each row
    logits: int = 0  # positions whose logits are computed
    decodes: int = 0  # 1: some rows have one position; all of those have one attention together

    def __add__(self, other: "Features") -> "Features":
        return Features(
            self.tokens + other.tokens,
            self.rows + other.rows,
            self.prompts + other.prompts,
            self.reads + other.reads,
            self.pairs + other.pairs,
            self.logits + other.logits,
            self.decodes | other.decodes,
        )


NONE = Features()


def row_features(start: int, length: int, logits: int = 0, padding: int = 0) -> Features:
    """Positions start .. start + length, and padding to their right that sees what the last sees.

    logits: of so many positions. What is read beside it because its neighbours are longer is
    nobody's own, and not in it.
    """
    end = start + length
    return Features(
        tokens=length + padding,
        rows=1,
        prompts=int(length + padding > 1),
        reads=end,
        pairs=length * start + length * (length + 1) // 2 + padding * end,
        logits=logits,
        decodes=int(length + padding == 1),
    )


def batch_features(batch: Batch, gathering: Gathering = UNPADDED) -> Features:
    """Of a whole step, its padding and held slots too. gathering: the executor's, of the rows of
    one position."""
    tokens = prompts = reads = pairs = logits = 0
    width, longest, singles = batch.width, 0, list[int]()
    for _, start, mine, _, want in batch.rows:
        length = len(mine)
        end = start + length
        tokens += length
        logits += 1 if want is LAST else _logits(start, length, want)
        if length == 1 >= width:
            singles.append(end)
        else:
            prompts += 1
            reads += end
            pairs += length * start + length * (length + 1) // 2
            if width > length:
                pairs += (width - length) * end
        if end > longest:
            longest = end
    held = batch.held
    if held and width > 1:  # a prompt's worth of work each
        prompts += held
        reads += held * width
        pairs += held * (width * (width + 1) // 2)
    elif held:  # each attends to as much as the longest row
        singles += [longest] * held
    keys, rows = gathering.keys(singles), len(batch.rows) + held
    return Features(
        tokens + batch.waste, rows, prompts, reads + keys, pairs + keys, logits, int(bool(singles))
    )


def _logits(start: int, length: int, want: Want) -> int:
    return (length if want & Want.PROMPT else 0) + (1 if want & Want.LAST else 0)


def added(row: Row) -> Features:
    """What one more row brings to a step."""
    return row_features(row.start, len(row.tokens), _logits(row.start, len(row.tokens), row.want))
