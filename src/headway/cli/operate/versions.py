"""`headway versions`: change a running server's configuration, measured and reversibly."""

import json
import os
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from headway.cli.options import AsJson
from headway.cli.screen import screen

Url = Annotated[
    str, typer.Option(metavar="URL", help="The server. Its key, with admin: $HEADWAY_ADMIN_KEY.")
]
Number = Annotated[int, typer.Argument(help="The version's number.")]
Model = Annotated[str, typer.Option(metavar="NAME", help="Of several models. Default: the first.")]
Settle = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="For the requests of a slice to end, before it is judged. Default: 1m."
    ),
]
Why = Annotated[str, typer.Option(metavar="TEXT", help="Kept with the version.")]
LOCAL = "http://127.0.0.1:8000"
KEY = "HEADWAY_ADMIN_KEY"

versions_app = typer.Typer(
    help="Propose, try, promote and roll back versions of the strategy and the lanes.\n\n"
    "A trial alternates between two versions in slices of time, on one engine or on two that "
    "share the traffic, and takes the new one back by itself when a guardrail trips. The server "
    "needs --versions STORE.\n\n"
    "Example: headway versions propose change.yaml, then headway versions start 2",
    no_args_is_help=True,
)


def _ask(url: str, path: str = "", body: dict[str, Any] | None = None) -> dict[str, Any]:
    from headway.commands.versions.client import ask

    return ask(url, os.environ.get(KEY, ""), path, body)


def _print(found: dict[str, Any], as_json: bool) -> None:
    from headway.commands.versions.show import print_version

    if as_json:
        print(json.dumps(found))
    else:
        print_version(screen(), found)


@versions_app.command()
def propose(
    file: Annotated[
        Path,
        typer.Argument(
            help="YAML: `config` with changes of engine and lanes, `reason`, and perhaps model, "
            "author, expects, pressure, owner, guardrails, rollback."
        ),
    ],
    model: Model = "",
    url: Url = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Check a change of the promoted version and give it a number. Nothing changes yet.

    Exit status: 2 if the change is wrong, or if the server does not take it.

    Example: headway versions propose change.yaml
    """
    from headway.server.config.sources import read_file

    change = read_file(file)
    if model:
        change["model"] = model
    _print(_ask(url, "", change), as_json)


@versions_app.command("list")
def list_versions(model: Model = "", url: Url = LOCAL, as_json: AsJson = False) -> None:
    """All versions of a model, which one is in force, and how far a trial is.

    Example: headway versions list
    """
    from headway.commands.versions.show import print_list

    found = _ask(url, f"?model={quote(model)}" if model else "")
    if as_json:
        print(json.dumps(found))
    else:
        print_list(screen(), found)


@versions_app.command()
def show(number: Number, url: Url = LOCAL, as_json: AsJson = False) -> None:
    """What a version expects, and all that happened to it: expected against measured.

    Example: headway versions show 2
    """
    _print(_ask(url, f"/{number}"), as_json)


@versions_app.command()
def diff(
    number: Number,
    other: Annotated[int, typer.Argument(help="The version that it is compared with.")],
    url: Url = LOCAL,
) -> None:
    """The settings in which two versions differ.

    Example: headway versions diff 1 2
    """
    from headway.commands.versions.show import print_differences

    print_differences(screen(), _ask(url, f"/{number}"), _ask(url, f"/{other}"))


@versions_app.command()
def start(
    number: Number,
    slice: Annotated[
        str, typer.Option(metavar="TIME", help="How long each version is in force. Default: 6s.")
    ] = "",
    wash_out: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="After each switch, arrivals do not count. Default: 1500ms."
        ),
    ] = "",
    longest: Annotated[
        str, typer.Option(metavar="TIME", help="Then the trial ends. Default: 30m.")
    ] = "",
    settle: Settle = "",
    alpha: Annotated[
        float, typer.Option(help="Probability of a false rollback, of all guardrails together.")
    ] = 0.05,
    share: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Of the traffic, for each version, where the model has replicas. Default: that of "
            "one replica.",
        ),
    ] = None,
    sticky: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What keeps its replica: workflow (the header X-Headway-Workflow), tenant or "
            "request. Default: workflow.",
        ),
    ] = "",
    promote_if_better: Annotated[
        bool,
        typer.Option(
            "--promote-if-better", help="Promote it at the end if the expected figure is better."
        ),
    ] = False,
    url: Url = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Begin a trial against the promoted version. It ends by itself.

    Example: headway versions start 2 --longest 20m
    """
    given = {"slice": slice, "wash_out": wash_out, "longest": longest, "settle": settle}
    given["sticky"] = sticky
    body: dict[str, Any] = {name: value for name, value in given.items() if value}
    body |= {"alpha": alpha, "promote_if_better": promote_if_better}
    if share is not None:
        body["share"] = share
    _print(_ask(url, f"/{number}/start", body), as_json)


@versions_app.command()
def promote(number: Number, why: Why = "", url: Url = LOCAL, as_json: AsJson = False) -> None:
    """Put a version in force for good; the server starts with it from now on.

    Example: headway versions promote 2 --why "the trial went well"
    """
    _print(_ask(url, f"/{number}/promote", {"why": why}), as_json)


@versions_app.command()
def rollback(number: Number, why: Why = "", url: Url = LOCAL, as_json: AsJson = False) -> None:
    """End a version's trial; or put the version before it in force, if it is promoted.

    Example: headway versions rollback 2 --why "callers complain"
    """
    _print(_ask(url, f"/{number}/rollback", {"why": why}), as_json)


@versions_app.command()
def reject(number: Number, why: Why = "", url: Url = LOCAL, as_json: AsJson = False) -> None:
    """Say that a version will not be tried.

    Example: headway versions reject 2
    """
    _print(_ask(url, f"/{number}/reject", {"why": why}), as_json)
