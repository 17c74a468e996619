"""Items: the units of work of the attention kernels, each a row of numbers.

item   | slot | flat token | queries | first position | keys of the row | from | to | partial |
merge  | flat token | first partial | spans |

from, to: the range of keys it reads. partial: the index where its sums go, to be merged; -1: it
writes the row's result directly.
"""

import numpy as np

from headway.executor.torch.attention.step_rows import Ints, StepRows

SPAN = 256  # keys of a span: what one item of a row of one query reads. A power of two
NO_ITEMS, NO_MERGES = np.zeros((0, 8), dtype=np.int64), np.zeros((0, 3), dtype=np.int64)


def single_items(rows: StepRows, window: int, span: int = SPAN) -> tuple[Ints, Ints, int]:
    """Items of the rows of one query, cut into spans; the merges; the number of partials.

    Spans are cut at multiples of `span`, wherever the window begins. A row of one span writes its
    result directly.
    """
    count = rows.singles
    keys = rows.keys[:count]
    if not window and (not count or keys[-1] <= span):  # even the longest: the usual step
        items = np.zeros((count, 8), dtype=np.int64)
        items[:, 0], items[:, 1], items[:, 2] = rows.slots[:count], rows.begins[:count], 1
        items[:, 3], items[:, 4], items[:, 6], items[:, 7] = keys - 1, keys, keys, -1
        return items, NO_MERGES, 0
    begin = np.maximum(keys - window, 0) if window else np.zeros_like(keys)
    first = begin // span
    spans = (keys - 1) // span - first + 1
    row = np.repeat(np.arange(count), spans)
    number = np.arange(len(row)) - np.repeat(spans.cumsum() - spans, spans)  # within its row
    at = (first[row] + number) * span
    several = spans[row] > 1
    partial = np.where(several, several.cumsum() - 1, -1)
    items = np.stack(
        [
            rows.slots[row],
            rows.begins[row],
            np.ones_like(row),
            keys[row] - 1,
            keys[row],
            np.maximum(begin[row], at),
            np.minimum(keys[row], at + span),
            partial,
        ],
        axis=1,
    )
    merged = np.flatnonzero(spans > 1)
    ends = spans[merged].cumsum()
    merges = np.stack([rows.begins[merged], ends - spans[merged], spans[merged]], axis=1)
    return items, merges, int(several.sum())


def many_items(rows: StepRows, window: int, most: int) -> Ints:
    """Items of the rows of many queries, at most `most` queries each. A row's last queries come
    first: they see the most keys and take the longest."""
    if rows.singles == len(rows.keys):
        return NO_ITEMS
    chosen = slice(rows.singles, None)
    queries, begins, starts, keys, slots = (
        column[chosen] for column in (rows.queries, rows.begins, rows.starts, rows.keys, rows.slots)
    )
    tiles = -(-queries // most)
    row = np.repeat(np.arange(len(queries)), tiles)
    number = np.repeat(tiles.cumsum(), tiles) - 1 - np.arange(len(row))  # within its row, falling
    offset = number * most
    count = np.minimum(most, queries[row] - offset)
    position = starts[row] + offset
    begin = np.minimum(position, keys[row] - 1) - window + 1 if window else np.zeros_like(row)
    end = np.minimum(position + count, keys[row])
    columns = [slots[row], begins[row] + offset, count, position, keys[row]]
    return np.stack([*columns, np.maximum(begin, 0), end, np.full_like(row, -1)], axis=1)
