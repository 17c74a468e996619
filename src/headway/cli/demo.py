"""`headway demo`."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import Model, Seed
from headway.cli.screen import screen


def demo(
    model: Model = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the report is written.")
    ] = Path("headway-demo"),
    seconds: Annotated[
        float,
        typer.Option(
            min=5, max=600, metavar="SECONDS", help="How long requests arrive, per strategy."
        ),
    ] = 11.0,
    seed: Seed = 0,
) -> None:
    """Serve recorded traffic under static, dynamic and continuous batching, and by budgets.

    Four endpoints share one model: inline completion and support drafts from recorded Azure
    traffic, a sparse voice endpoint, and a backlog of nightly labelling. It takes a minute and a
    quarter, says which strategies keep every budget, and writes report.html and report.json (the
    raw rows).

    Example: headway demo --seconds 40
    """
    from headway.commands.demo import run_demo

    raise typer.Exit(run_demo(model, out, seconds, seed, screen()))
