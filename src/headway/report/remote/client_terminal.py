"""What `headway bench` prints: the verdict, and the tables of the page, in 80 columns."""

from rich.console import Console
from rich.text import Text

from headway.report.analysis import Analysis
from headway.report.formatting import NOT_SAID, pressed
from headway.report.page.page_tables import Table, said_only
from headway.report.remote import client_tables
from headway.report.remote.client_doubts import doubts
from headway.report.terminal_tables import narrow_table
from headway.report.verdict import caution, verdict

ERRORS = 8  # kinds of errors that are printed; the report has all
NOTE = (
    "Milliseconds from the scheduled arrival, warm-up excluded. n: requests offered, without "
    "callers made to leave. ITL: each gap between two pieces of text. s: to the end of the "
    "window or of the last answer, without the wait for what was cut off. lag: until the client "
    "began to send."
)


def print_results(found: Analysis, console: Console) -> None:
    """Print the doubts, the verdict, and the tables; latency and throughput never share one."""
    console.print()
    for text in doubts(found):
        console.print(Text(text, style="yellow"))
    console.print(Text(verdict(found), style="bold"))
    if doubt := caution(found):
        console.print(Text(doubt, style="yellow"))
    _print(console, "Budgets", client_tables.budgets(found), 2)
    for lane in found.lanes:
        table = said_only(client_tables.latency(found, lane, ranges=False))
        _print(console, f"Latency of {lane} in milliseconds", table, 2)
    _print(console, "Throughput", client_tables.throughput(found), 1)
    _print(console, "The client, in milliseconds and cores", client_tables.client(found), 1)
    head, rows = client_tables.errors(found)
    if rows:
        _print(console, "What went wrong", (head, rows[:ERRORS]), 3)
        if len(rows) > ERRORS:
            console.print(Text(f"and {len(rows) - ERRORS} more kinds", style="dim"))
    console.print()
    for each in found.comparisons:
        compared = f" against {each.other}: {pressed(each.card)}."
        console.print(Text.assemble((each.name, "bold"), compared))
    console.print(Text(f"{NOTE} {NOT_SAID}: too few requests.", style="dim"))


def _print(console: Console, title: str, table: Table, words: int) -> None:
    """Print a table. words: how many columns at the left hold words, not numbers. The server
    column is left out if it has only one name."""
    head, rows = table
    at = head.index("server")
    if at < words and len({row[at] for row in rows}) == 1:
        head, words = head[:at] + head[at + 1 :], words - 1
        rows = [row[:at] + row[at + 1 :] for row in rows]
    printed = narrow_table(title, head[:words], head[words:], [client_tables.WRONG])
    for row in rows:
        printed.add_row(*row)
    console.print()
    console.print(printed)
