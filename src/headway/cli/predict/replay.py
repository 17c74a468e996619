"""`headway replay`."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import AsJson
from headway.cli.screen import screen


def replay(
    journal: Annotated[
        Path,
        typer.Argument(
            help="A journal of generate --journal, compare --journals or a server's "
            "engine.journal: the first file, if it has several."
        ),
    ],
    cost: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A cost file, which says how long each step takes. --set and --strategy need it.",
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change slots, step_tokens, chunk, order, mix, preempt, defer, relegate, window "
            "or num_blocks. May be repeated.",
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Change the strategy: a name, or a YAML file with one strategy."
        ),
    ] = "",
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where report.json is written.")
    ] = None,
) -> None:
    """Repeat a recorded run row for row, or say what other settings would have made of it.

    Example: headway replay incident.jsonl --cost cost.json --set slots=32
    """
    from headway.commands.replay.replay import ReplayOptions, run_replay

    options = ReplayOptions(journal, cost, strategy, tuple(sets or ()), as_json, out)
    raise typer.Exit(run_replay(options, screen()))
