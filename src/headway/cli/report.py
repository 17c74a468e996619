"""`headway report`."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import AsJson
from headway.cli.screen import screen


def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="A.json [B.json]",
            help="One report.json or two, of compare, simulate, demo or bench.",
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the page is written. Default: beside the file if there is one; "
            "of two, no page is written.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two reports, with an interval for each difference, or make a report's page again.

    Example: headway report before/report.json after/report.json --html difference.html
    """
    from headway.commands.report.report import ReportOptions, run_report

    raise typer.Exit(run_report(ReportOptions(tuple(files), html, as_json), screen()))
