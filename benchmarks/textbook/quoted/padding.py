"""Padding of short lists of prompts: formulas, and the engine's own count of computed cells."""

from collections.abc import Sequence

from benchmarks.textbook.lengths import grouped
from benchmarks.textbook.part import ARITHMETIC, Part, Table, percent
from headway.core.policies.join import Join, LengthClasses, Static

DOUBLING, BOUNDS = (32, 64, 128, 256, 512), (64, 128, 256, 512)
UNEVEN = (100, 100, 2000)


def share(lengths: Sequence[int], join: Join) -> tuple[float, int]:
    """The share of computed cells that is padding, and the cells, by the engine's own count."""
    run = grouped(lengths, [1] * len(lengths), join)
    cells = run.padding + run.tokens
    return run.padding / cells, cells


def short_lists() -> Part:
    figures, rows = dict[str, float](), list[list[str]]()
    for key, words, lengths, join in (
        ("doubling", "one group", DOUBLING, Static(5)),
        (
            "own",
            "bounds 64, 128, 256, 512",
            DOUBLING,
            LengthClasses(5, BOUNDS, 0, pad_to_bound=True),
        ),
        ("uneven", "one group", UNEVEN, Static(3)),
        ("apart", "bound 128", UNEVEN, LengthClasses(3, (128,), 0)),
    ):
        padded, cells = share(lengths, join)
        figures |= {key: padded * 100, f"{key}_cells": cells}
        listed = ", ".join(f"{length:,}" for length in lengths)
        rows.append([f"{listed}: {words}", f"{sum(lengths):,}", f"{cells:,}", percent(padded)])
    longest, shortest = max(UNEVEN), min(UNEVEN)
    figures["short_row"] = (longest - shortest) / longest * 100
    head = ["prompts", "their tokens", "computed cells", "padding"]
    return Part(ARITHMETIC, [Table(head, rows)], figures)
