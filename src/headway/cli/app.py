"""The command line. What it says no to is one line on stderr and exit status 2."""

from pathlib import Path
from typing import Annotated

import typer

from headway import __version__

app = typer.Typer(
    help="Serve models under a latency budget per endpoint, and measure what batching costs.",
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
Lanes = Annotated[Path | None, typer.Option(help="Endpoints, as YAML.")]
Strategies = Annotated[
    str,
    typer.Option(help="Names with commas between, or a YAML file. Default: fourteen of them."),
]
TokenScale = Annotated[
    float, typer.Option(min=0.001, help="The traces' token counts are divided by this.")
]
Rate = Annotated[float, typer.Option(min=0, help="Requests a second; 0: by --load.")]
Load = Annotated[float, typer.Option(min=0, help="Device-seconds a second; 0: 0.12.")]
Baseline = Annotated[str, typer.Option(help="Whom the cards compare with.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headway {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    pass
