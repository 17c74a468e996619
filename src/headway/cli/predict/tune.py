"""`headway tune`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.options import Cost, Lanes, Seed, TokenScale, Traces
from headway.errors import SettingError


def tune(
    cost: Cost = Path("cost.json"),
    trace: Traces = None,
    lanes: Lanes = None,
    rate: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="RATE",
            show_default=False,
            help="Requests per second that must be kept, at the least device time. Default: find "
            "the settings with the highest rate.",
        ),
    ] = 0.0,
    requests: Annotated[
        int, typer.Option(min=10, metavar="N", help="Requests of each of the four windows.")
    ] = 400,
    token_scale: TokenScale = 8.0,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            show_default=False,
            help="The cost file's model: a folder or hub id. Default: as the cost file names it.",
        ),
    ] = None,
    seed: Seed = 0,
    workers: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", show_default=False, help="Processes. Default: one per core."
        ),
    ] = 0,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The configuration to write.")] = (
        Path("headway.yaml")
    ),
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the evidence as JSON too.")
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live/--no-live",
            help="Serve a held-out window with the live model at the end, if the cost file was "
            "measured on this machine with the embedded model or with --model.",
        ),
    ] = True,
) -> None:
    """Find a server's settings for recorded traffic, in virtual time.

    Searches strategy, slots, chunk, step tokens, windows and slot shares for the highest rate that
    keeps 95 % of every lane inside its budget, and checks the answer on windows of the trace that
    it was not chosen by, and on the live model if there is one. Writes headway.yaml with the
    evidence, and prints vLLM's arguments.

    Example: headway tune --cost cost.json --lanes lanes.yaml
    """
    if find_spec("pydantic_settings") is None:
        raise SettingError("headway tune writes a server's settings: pip install 'headway[server]'")
    from headway.commands.tune.options import TuneOptions
    from headway.commands.tune.tune import run_tune

    options = TuneOptions(
        cost=cost,
        model=model,
        traces=tuple(trace or ()),
        lanes=lanes,
        rate=rate,
        requests=requests,
        token_scale=token_scale,
        seed=seed,
        workers=workers,
        out=out,
        json=json,
        live=live,
    )
    raise typer.Exit(run_tune(options, Console()))
