"""`headway config`: its commands about the server's configuration."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import AsJson

Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A YAML file. Default: the one $HEADWAY_CONFIG names."),
]
Model = Annotated[
    str | None,
    typer.Argument(
        help="As in `headway serve`: a checkpoint's folder or hub id, or module:function. It "
        "replaces the file's `models`. Default: the file's, or the embedded headway-tiny."
    ),
]
config_app = typer.Typer(
    help="Check, show and describe the configuration of `headway serve`; make API keys.\n\n"
    "Example: headway config show --config headway.yaml",
    no_args_is_help=True,
)


@config_app.command()
def validate(model: Model = None, config: Config = None) -> None:
    """Check the file and what it names, and say what would be served.

    Looks at the model's files, the cost file, the journal's folder and the free memory. Exit
    status: 2 if a setting is wrong, with one line that names it.

    Example: headway config validate --config headway.yaml
    """
    from headway.server.config.show import validate_file
    from headway.server.functions.target import names_a_function

    if model is not None and names_a_function(model):
        from headway.server.functions.run import validate_function

        print(validate_function(model, config))
    else:
        print(validate_file(config, model))


@config_app.command()
def show(config: Config = None, as_json: AsJson = False) -> None:
    """Print every setting in force, and who set it: the file, a variable, or nobody (default).

    Example: headway config show --config headway.yaml
    """
    from headway.server.config.show import show_settings

    print(show_settings(config, as_json))


@config_app.command()
def schema() -> None:
    """Print the JSON Schema of the file, for editors and checks.

    Example: headway config schema > headway.schema.json
    """
    from headway.server.config.show import file_schema

    print(file_schema())


@config_app.command()
def key(
    name: Annotated[str, typer.Argument(help="What logs and metrics call the key.")],
) -> None:
    """Make an API key. It is printed once, with the entry for the file, which holds its hash.

    Example: headway config key search
    """
    from headway.server.config.sections.keys import new_key

    print(new_key(name))


@config_app.command()
def webhook_secret() -> None:
    """Make a secret that signs webhooks. It goes into the file, and to whoever checks them.

    Example: headway config webhook-secret
    """
    from headway.server.config.sections.jobs import new_secret

    print(new_secret())
