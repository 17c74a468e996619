"""The command line. What it says no to is one line on stderr and exit status 2."""

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
