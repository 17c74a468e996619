"""The figures of several repeats of a run, as one row (median_figures)."""

from collections.abc import Sequence
from dataclasses import fields, replace
from statistics import median_low
from typing import Any, TypeVar

from headway.figures.engine_figures import EngineFigures
from headway.figures.lane_figures import LaneFigures

Figures = TypeVar("Figures", LaneFigures, EngineFigures)


def median_figures(repeats: Sequence[Figures]) -> Figures:
    """Each figure's median over the repeats, as the page has it: the lower one of an even number.
    A figure that any repeat lacks is None."""
    columns = {
        each.name: [getattr(one, each.name) for one in repeats] for each in fields(repeats[0])
    }
    return replace(repeats[0], **{name: _median(values) for name, values in columns.items()})


def _median(values: Sequence[Any]) -> Any:
    if isinstance(values[0], str):
        return values[0]
    return None if None in values else median_low(values)
