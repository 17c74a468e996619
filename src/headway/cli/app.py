"""The command line. What it says no to is one line on stderr and exit status 2."""

from pathlib import Path
from typing import Annotated

import typer

from headway import __version__

SERVE, MEASURE, PREDICT = "Use a model", "Compare strategies", "Predict"

app = typer.Typer(
    help="Serve models under a latency budget per endpoint, and measure what batching costs.\n\n"
    "Begin with `headway demo` (three minutes), or with `headway serve`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[
    str | None,
    typer.Option(help="A checkpoint's folder or hub id. Default: the embedded headway-tiny."),
]

Traces = Annotated[
    list[Path] | None,
    typer.Option("--trace", help="Azure, BurstGPT, Mooncake or shared CSV form; each an endpoint."),
]
Lanes = Annotated[Path | None, typer.Option(help="Endpoints and their budgets, as YAML.")]
Strategies = Annotated[
    str,
    typer.Option(help="Names with commas between, or a YAML file. Default: fourteen of them."),
]
Seconds = Annotated[
    float,
    typer.Option(
        min=1,
        help="How many requests: with --rate those of the traces' first so many seconds, else as "
        "many as last so long at a load of 0.12.",
    ),
]
TokenScale = Annotated[
    float, typer.Option(min=0.001, help="The traces' token counts are divided by this.")
]
Rate = Annotated[
    float,
    typer.Option(
        min=0,
        show_default=False,
        help="Requests a second, all endpoints: how fast they come. Default: by --load.",
    ),
]
Load = Annotated[
    float,
    typer.Option(
        min=0,
        show_default=False,
        help="Device-seconds of work offered a second. Default: 0.12, below everybody's overload.",
    ),
]
Baseline = Annotated[
    str,
    typer.Option(help="The strategy that others are held against. Default: dynamic-lanes."),
]
PricePerHour = Annotated[
    float,
    typer.Option(min=0, show_default=False, help="Of the machine. Default: the cost file's."),
]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headway {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> None:
    pass
