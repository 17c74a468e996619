"""Counts of what a step computes and reads (Features): all that its price depends on."""

from typing import NamedTuple

from headway.core.batch import Batch, Row, Want
from headway.core.cost.gathering import UNPADDED, Gathering

LAST = Want.LAST


class Features(NamedTuple):
    """The features of a row or of a step. A step's are the sum of its rows', except `decodes`, 0 or
    1. A named tuple, because many are made for each step."""

    tokens: int = 0  # positions computed, including waste
    rows: int = 0  # sequences and held slots
    prompts: int = 0  # rows with more than one position: attention runs once for each
    reads: int = 0  # keys read from the KV memory, including padding
    pairs: int = 0  # (query, key) pairs: length x (start + length / 2) for each row
    logits: int = 0  # positions whose logits are computed
    decodes: int = 0  # 1 if any rows have one position: attention runs once for all of them

    def __add__(self, other: "Features") -> "Features":  # type: ignore[override]
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
    """Features of one row: positions start .. start + length, and padding to their right.

    A padding position attends to as many keys as the last position. logits: positions whose logits
    are computed. Keys read only because other rows are longer are not counted (`gathering`).
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
    """Features of a whole step, including padding and held slots.

    gathering: how the executor reads keys and values for rows of one position.
    """
    tokens = prompts = reads = pairs = logits = 0
    width, longest = batch.width, 0
    singles: list[int] = []
    for _, start, mine, _, want in batch.rows:
        length = len(mine)
        end = start + length
        tokens += length
        logits += 1 if want is LAST else _logits(start, length, want)
        if length == 1 and width <= 1:
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
    if held and width > 1:  # each costs as much as a prompt of this width
        prompts += held
        reads += held * width
        pairs += held * (width * (width + 1) // 2)
    elif held:  # each attends to as many keys as the longest row
        singles += [longest] * held
    keys, rows = gathering.reads(singles), len(batch.rows) + held
    return Features(
        tokens + batch.waste, rows, prompts, reads + keys, pairs + keys, logits, int(bool(singles))
    )


def _logits(start: int, length: int, want: Want) -> int:
    return (length if want & Want.PROMPT else 0) + (1 if want & Want.LAST else 0)


def added(row: Row) -> Features:
    """What one more row adds to a step."""
    return row_features(row.start, len(row.tokens), _logits(row.start, len(row.tokens), row.want))
