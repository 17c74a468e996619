"""Commands of the server: serve, and what its configuration is."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from headway.cli.app import SERVE, app

Config = Annotated[
    Path | None,
    typer.Option(help="A YAML file. Default: what $HEADWAY_CONFIG names, if it is set."),
]
config_app = typer.Typer(
    help="Check, show and describe the configuration of `headway serve`; make API keys.",
    no_args_is_help=True,
)
app.add_typer(config_app, name="config", rich_help_panel=SERVE)


@app.command(rich_help_panel=SERVE)
def serve(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A checkpoint's folder or hub id, in place of the file's `models` with its name, "
            "aliases, dtype and device. Default: the file's, or the embedded headway-tiny."
        ),
    ] = None,
    config: Config = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 0.0.0.0 for all. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0: any free one. Default: 8000.")
    ] = None,
    drain_timeout: Annotated[
        str | None,
        typer.Option(help="For what still runs, after SIGTERM or ctrl-C. Default: 30s."),
    ] = None,
) -> None:
    """Serve a model behind OpenAI's API, each lane within its latency budget.

    Without a file: three lanes (interactive, standard, offline), for everybody on this machine and
    nobody else. A file sets lanes, API keys and limits; what is said here goes before it. Exit
    status: 0 after a signal; 1 where the engine has died; 2 for what cannot be obeyed.

    Example: headway serve --config headway.yaml
    """
    from headway.server.config.config import ServerConfig
    from headway.server.run import serve as run

    listen = {"host": host, "port": port, "drain_timeout": drain_timeout}
    flags: dict[str, Any] = {"server": {k: v for k, v in listen.items() if v is not None}}
    if model is not None:
        flags["models"] = [{"path": model}]
    raise typer.Exit(run(ServerConfig.load(config, flags), Console()))


@config_app.command()
def validate(config: Config = None) -> None:
    """Say what would be served; or, with exit status 2, which setting cannot be obeyed."""
    from headway.server.config.show import validated

    print(validated(config))


@config_app.command()
def show(
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Print every setting in force, and who set it: the file, a variable, or nobody (default)."""
    from headway.server.config.show import shown

    print(shown(config, as_json))


@config_app.command()
def schema() -> None:
    """Print the JSON schema of the file, for editors."""
    from headway.server.config.show import schema as described

    print(described())


@config_app.command()
def key(name: Annotated[str, typer.Argument(help="What logs and metrics will call it.")]) -> None:
    """Make an API key. It is printed once, with the entry for the file, which holds its hash."""
    from headway.server.config.sections.keys import new_key

    print(new_key(name))
