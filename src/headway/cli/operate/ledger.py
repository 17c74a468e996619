"""`headway ledger` and `headway explain`."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import AsJson
from headway.cli.screen import screen

Store = Annotated[
    str,
    typer.Option(
        "--ledger",
        metavar="STORE",
        envvar="HEADWAY_LEDGER__URL",
        help="As of headway serve: a file of SQLite, or postgresql://USER@HOST/NAME.",
    ),
]
ledger_app = typer.Typer(
    help="Ask a ledger what requests cost, query it, export it, check its sums. It may be written "
    "meanwhile.\n\nExample: headway ledger spend --ledger ledger.db --by lane",
    no_args_is_help=True,
)


@ledger_app.command()
def spend(
    ledger: Store,
    by: Annotated[
        str,
        typer.Option(help="lane, tenant, version, prompt_version, key or model."),
    ] = "lane",
    label: Annotated[
        str, typer.Option(help="The outcome that counts, of POST /v1/outcomes.")
    ] = "resolved",
    as_json: AsJson = False,
) -> None:
    """Print what requests cost: in all, per good request and per resolved outcome.

    A good request has ended by itself, inside every limit of its lane. Below stands where all
    device time went: its accounts (docs/ledger.md) sum to it exactly.

    Example: headway ledger spend --ledger ledger.db --by prompt_version
    """
    from headway.commands.ledger.ledger_spend import run_spend

    raise typer.Exit(run_spend(ledger, by, label, as_json, screen()))


@ledger_app.command()
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="In DuckDB's SQL.")],
    ledger: Store,
    as_json: AsJson = False,
) -> None:
    """Query a copy of the ledger: the views requests, minutes and outcomes (docs/ledger.md).

    Nothing that a query does changes the ledger. With --json, each row is a line.

    Example: headway ledger query --ledger ledger.db "SELECT count(*) FROM requests GROUP BY lane"
    """
    from headway.commands.ledger.ledger_query import run_query

    raise typer.Exit(run_query(ledger, sql, as_json, screen()))


@ledger_app.command()
def export(
    ledger: Store,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The Parquet file to write.")],
    view: Annotated[str, typer.Option(help="requests, minutes or outcomes.")] = "requests",
) -> None:
    """Write one view as a Parquet file.

    Example: headway ledger export --ledger ledger.db --to ledger.parquet
    """
    from headway.commands.ledger.ledger_query import run_export

    raise typer.Exit(run_export(ledger, to, view, screen()))


@ledger_app.command()
def check(ledger: Store) -> None:
    """Check that every nanosecond and all money is in one account. Exit status: 1 if not.

    Example: headway ledger check --ledger ledger.db
    """
    from headway.commands.ledger.ledger_query import run_check

    raise typer.Exit(run_check(ledger, screen()))


def explain(
    id: Annotated[
        str, typer.Argument(metavar="REQUEST_ID", help="Of an answer, or an X-Request-Id.")
    ],
    url: Annotated[
        str, typer.Option(metavar="URL", help="Of the server. Default: http://127.0.0.1:8000.")
    ] = "",
    ledger: Annotated[
        str, typer.Option(metavar="STORE", help="Ask this ledger instead of a server.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Say where the time of one request went, stage by stage, from its receipt to the last byte.

    A server explains its latest two thousand calls, and with a ledger all that it has kept. The key
    is read from $HEADWAY_API_KEY; it explains requests of its own tenant.

    Example: headway explain chatcmpl-6f1c... --url http://127.0.0.1:8000
    """
    from headway.commands.explain.explain import run_explain

    asked = url or ("" if ledger else "http://127.0.0.1:8000")
    raise typer.Exit(run_explain(id, asked, ledger, as_json, screen()))
