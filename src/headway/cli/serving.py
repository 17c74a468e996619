"""Commands of the server: serve, and what its configuration is."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from headway.cli.app import app

Config = Annotated[
    Path | None, typer.Option(help="headway.yaml; default: $HEADWAY_CONFIG, or none.")
]
config_app = typer.Typer(
    help="Check, show and describe the server's configuration.", no_args_is_help=True
)
app.add_typer(config_app, name="config")


@app.command()
def serve(
    model: Annotated[
        str | None,
        typer.Argument(help="A checkpoint's folder or hub id; none: the embedded headway-tiny."),
    ] = None,
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="To listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="To listen on.")] = None,
    drain_timeout: Annotated[
        float | None, typer.Option(help="Seconds that SIGTERM leaves to what runs.")
    ] = None,
) -> None:
    """An OpenAI-compatible server with a latency budget per endpoint.

    Example: headway serve --config headway.yaml
    """
    from headway.server.config import ServerConfig
    from headway.server.run import serve as run

    listen = {"host": host, "port": port, "drain_timeout": drain_timeout}
    flags: dict[str, Any] = {"server": {k: v for k, v in listen.items() if v is not None}}
    if model is not None:
        flags["models"] = [{"path": model}]
    raise typer.Exit(run(ServerConfig.load(config, flags), Console()))


@config_app.command()
def validate(config: Config = None) -> None:
    """Say whether it can be obeyed, and if not which line cannot."""
    from headway.server.showing import validated

    print(validated(config))


@config_app.command()
def show(
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """What is in force, and whether a flag, the environment or the file has said so."""
    from headway.server.showing import shown

    print(shown(config, as_json))


@config_app.command()
def schema() -> None:
    """The file's JSON schema."""
    from headway.server.showing import schema as described

    print(described())


@config_app.command()
def key(name: Annotated[str, typer.Argument(help="Whose key it is.")]) -> None:
    """Make a key: it is shown once, and its hash goes into the file."""
    from headway.server.keys import new_key

    print(new_key(name))
