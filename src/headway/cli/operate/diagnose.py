"""`headway diagnose`."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import AsJson
from headway.cli.screen import screen


def diagnose(
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A journal: the first file, if it has several."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A report.json of compare, simulate, demo or bench."),
    ] = None,
    ledger: Annotated[
        str,
        typer.Option(
            metavar="STORE",
            help="A ledger: a file of SQLite, or postgresql://USER@HOST/NAME.",
        ),
    ] = "",
    minutes: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="MINUTES",
            help="Of a --ledger: how far back from its latest request. Default: 60.",
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Of a --ledger or a --url that has several models.")
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The headway.yaml of the server that wrote the --ledger, for its lanes. "
            "Default: the versions in the store.",
        ),
    ] = None,
    url: Annotated[
        str,
        typer.Option(metavar="URL", help="A live server: its counters are read twice."),
    ] = "",
    key: Annotated[
        str,
        typer.Option(
            envvar="HEADWAY_API_KEY",
            metavar="KEY",
            help="An API key for --url.",
            show_default=False,
        ),
    ] = "",
    seconds: Annotated[
        float,
        typer.Option(min=0.1, max=600, metavar="SECONDS", help="Between the two looks of --url."),
    ] = 10.0,
    cost: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A cost file, which says how long each step of a --journal should have taken, and "
            "what the requests of a --ledger cost. Default: what the journal recorded, else a fit "
            "to its steps; of a ledger, engine.cost of --config.",
        ),
    ] = None,
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="Which run of a --report that has several.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Name the likely cause of what hurts, with its evidence and one change to try.

    Exit status: 0, nothing hurts; 1, something does; 2, the source cannot be read.

    Example: headway diagnose --journal incident.jsonl

    Example: headway diagnose --ledger ledger.db --config headway.yaml
    """
    from headway.commands.diagnose.diagnose import DiagnoseOptions, run_diagnose

    options = DiagnoseOptions(
        *(journal, report, ledger, minutes, model, config, url, key, seconds, cost, strategy),
        as_json,
    )
    raise typer.Exit(run_diagnose(options, screen()))
