"""What a part of the textbook says: tables for the document, figures for the JSON line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from rich.console import Console
from rich.table import Table as Shown

ARITHMETIC, SIMULATED, MEASURED = "arithmetic", "simulated", "measured"


@dataclass(frozen=True, slots=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    name: str = ""  # of several in one part

    def markdown(self) -> str:
        """A table of a Markdown document; the first column is words, the others are numbers."""
        rule = ["---", *["---:"] * (len(self.head) - 1)]
        lines = [self.head, rule, *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def show(self, title: str) -> None:
        shown = Shown(title=title, title_justify="left")
        for at, column in enumerate(self.head):
            shown.add_column(column, justify="right" if at else "left")
        for row in self.rows:
            shown.add_row(*row)
        Console(width=130).print(shown)


@dataclass(frozen=True, slots=True)
class Part:
    basis: str  # ARITHMETIC, SIMULATED or MEASURED
    tables: Sequence[Table]
    figures: Mapping[str, float] = field(default_factory=dict)  # by name, without the part's
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)  # of measured ones


def seeded(name: str) -> Random:
    """The same numbers on every machine, and others for every name."""
    return Random(f"textbook {name}")


def percent(share: float) -> str:
    return f"{share * 100:.1f}\u00a0%"


def ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:,.0f}" if nanoseconds >= 1e8 else f"{nanoseconds / 1e6:,.1f}"
