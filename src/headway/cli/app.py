"""The command line: its commands, in the order and under the headings of the help."""

from typing import Annotated

import typer

from headway import __version__
from headway.cli.bench import bench
from headway.cli.check import check
from headway.cli.compare import compare
from headway.cli.config import config_app
from headway.cli.demo import demo
from headway.cli.generate import generate
from headway.cli.operate.diagnose import diagnose
from headway.cli.operate.ledger import explain, ledger_app
from headway.cli.operate.versions import versions_app
from headway.cli.predict.calibrate import calibrate
from headway.cli.predict.plan import plan
from headway.cli.predict.replay import replay
from headway.cli.predict.simulate import simulate
from headway.cli.predict.tune import tune
from headway.cli.report import report
from headway.cli.serve import serve

MEASURE, SERVE, PREDICT = "Measure and compare", "Use a model", "Predict"

app = typer.Typer(
    help="Serve models under a latency budget per endpoint, and measure what batching costs.\n\n"
    "Begin with `headway demo` (a minute and a quarter) or `headway serve`. "
    "`headway COMMAND --help` shows an example of each command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(rich_help_panel=MEASURE)(demo)
app.command(rich_help_panel=MEASURE)(compare)
app.command(rich_help_panel=MEASURE)(bench)
app.command(rich_help_panel=MEASURE)(report)
app.command(rich_help_panel=MEASURE)(diagnose)
app.command(rich_help_panel=SERVE)(check)
app.command(rich_help_panel=SERVE)(generate)
app.command(rich_help_panel=SERVE)(serve)
app.command(rich_help_panel=SERVE)(explain)
app.add_typer(ledger_app, name="ledger", rich_help_panel=SERVE)
app.add_typer(config_app, name="config", rich_help_panel=SERVE)
app.add_typer(versions_app, name="versions", rich_help_panel=SERVE)
app.command(rich_help_panel=PREDICT)(calibrate)
app.command(rich_help_panel=PREDICT)(simulate)
app.command(rich_help_panel=PREDICT)(replay)
app.command(rich_help_panel=PREDICT)(plan)
app.command(rich_help_panel=PREDICT)(tune)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headway {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """The options of `headway` without a command."""
