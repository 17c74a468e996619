"""Two reports' differences on a terminal of 80 columns."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.report.difference.difference_tables import HEAD, cells, how_paired, notes
from headway.report.difference.pairing import Pairing
from headway.report.terminal_tables import narrow_table, print_notes

WIDTHS = (9, 5, 6, 6, 10, 16, 9)  # minimum widths of the columns


def print_differences(pairing: Pairing, console: Console) -> None:
    """Print the answer, what else differs, and a table per lane and per strategy's throughput."""
    console.print(Text(pairing.answer, style="bold"))
    console.print(Text(f"First: {pairing.titles[0]}; second: {pairing.titles[1]}."))
    for text in (*pairing.others, *pairing.left_out):
        console.print(Text(text, style="yellow"))
    console.print()
    for each in pairing.lanes:
        title = f"{each.strategy}, {each.lane}: {how_paired(each)}"
        console.print(_table(title, [cells(change) for change in each.differences]))
        console.print()
    for name, changes in pairing.rates.items():
        console.print(_table(f"Throughput of {name}", [cells(change) for change in changes]))
        console.print()
    print_notes(console, notes(pairing))


def _table(title: str, rows: Sequence[Sequence[str]]) -> Table:
    """A table with minimum column widths, so that columns line up from table to table."""
    table = narrow_table(title, HEAD[:1], HEAD[1:])
    for column, width in zip(table.columns, WIDTHS, strict=True):
        column.min_width = width
    for row in rows:
        table.add_row(*row)
    return table
