"""The table of sizes that follow the load, cell by cell, for the terminal and the page."""

from collections.abc import Mapping, Sequence

from headway.core.cost.lane_sizes import WINDOW
from headway.core.ledger import SizeChange

HEAD = ["strategy", "endpoint", "size", "from", "to", "least", "most", "changes"]


def size_changes(
    changes: Mapping[str, Sequence[SizeChange]],
) -> tuple[list[str], list[list[str]]]:
    """The head, and a row for each size that changed. Windows are in milliseconds.

    changes: by strategy, in order of time.
    """
    rows = []
    for strategy, made in changes.items():
        for lane, what in dict.fromkeys((each.lane, each.what) for each in made):
            mine = [each for each in made if (each.lane, each.what) == (lane, what)]
            sizes = [mine[0].before, *(each.after for each in mine)]
            unit = 1e6 if what == WINDOW else 1
            ends = sizes[0], sizes[-1], min(sizes), max(sizes)
            said = [f"{size / unit:.4g}" for size in ends]
            rows.append([strategy, lane or "all", what, *said, str(len(mine))])
    return HEAD, rows
