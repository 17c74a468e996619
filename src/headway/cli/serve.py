"""`headway serve`."""

import os
import signal
import socket
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.config import Config
from headway.cli.executor_options import Executor, Vllm, read_vllm
from headway.cli.options import Quantize
from headway.cli.screen import screen
from headway.errors import SettingError


def serve(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A checkpoint's folder or hub id, or module:function. It replaces the file's "
            "`models`, with their name, aliases, dtype and device. Default: the file's, or the "
            "embedded headway-tiny."
        ),
    ] = None,
    config: Config = None,
    quantize: Quantize = "",
    executor: Executor = "",
    vllm: Vllm = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; 0.0.0.0 for all. Default: 127.0.0.1."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Port to listen on; 0 for any free one. Default: 8000."),
    ] = None,
    jobs: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Keep files, batches and jobs in this file of SQLite, or at postgresql://... "
            "Default: there are none.",
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Keep a row for each request in this file of SQLite, or at postgresql://... It "
            "may be that of --jobs. Default: nothing is kept.",
        ),
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Keep versions of the strategy and the lanes in this file of SQLite, or at "
            "postgresql://... It may be the one of --jobs. Default: there are none.",
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="Read the keys again when the file has changed, as on SIGHUP."
        ),
    ] = False,
    drain_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long running requests may take after SIGTERM or ctrl-C. Default: 30s.",
        ),
    ] = None,
) -> None:
    """Serve a model behind OpenAI's API, each lane within its latency budget.

    Without a file there are three lanes (interactive, standard, offline), open to everybody on this
    machine and to nobody else. A file sets lanes, API keys and limits, and may have several models
    and functions; an option here overrides it. Exit status: 0 after a signal; 1 if nothing is left
    that answers; 2 if a setting is wrong.

    module:function serves a function of a list, decorated with @headway.batch or not: an item per
    request, batched.

    Example: headway serve --config headway.yaml --port 9000
    """
    hung_up = _hang_ups()
    from headway.server.config.config import FILE, ServerConfig
    from headway.server.functions.target import names_a_function
    from headway.server.reload import Reload

    listen = {"host": host, "port": port, "drain_timeout": drain_timeout}
    flags: dict[str, Any] = {"server": {k: v for k, v in listen.items() if v is not None}}
    if jobs is not None:
        flags["jobs"] = {"store": jobs}
    if ledger is not None:
        flags["ledger"] = {"url": ledger}
    if versions is not None:
        flags["versions"] = {"store": versions}
    compute = ("executor", executor), ("vllm", read_vllm(vllm))
    flags["engine"] = {name: value for name, value in compute if value}
    watched = (config or Path(os.environ.get(FILE, ""))) if reload else None
    if watched == Path():
        raise SettingError("--reload watches a file, and there is none: give --config")
    if model is not None and names_a_function(model):
        if versions is not None:
            raise SettingError("--versions is for models, not functions")
        if flags["engine"] or quantize:
            raise SettingError("--executor, --vllm and --quantize are for models, not functions")
        from headway.server.functions.run import FunctionConfig, serve_function

        ours = {name: each for name, each in flags.items() if name != "engine"}
        again = Reload.of(partial(FunctionConfig.load, config, ours), watched, hung_up)
        found = FunctionConfig.load_with_origins(config, ours)
        raise typer.Exit(serve_function(model, *found, screen(), again))
    if model is not None:
        flags["models"] = [{"path": model, **({"quantize": quantize} if quantize else {})}]
    elif quantize:
        raise SettingError(
            "--quantize needs a MODEL, such as headway-tiny; in a file it is `quantize` of a model"
        )
    from headway.server.run import serve as run

    again = Reload.of(partial(ServerConfig.load, config, flags), watched, hung_up)
    raise typer.Exit(run(ServerConfig.load(config, flags), screen(), again))


def _hang_ups() -> threading.Event:
    """An event that a SIGHUP sets from now on. Until the reload is ready it would end the process,
    and a supervisor takes that for an ordinary end. The engine's process inherits no handler, as it
    would a mask."""
    came = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: came.set())
    _tell_systemd()
    return came


def _tell_systemd() -> None:
    """Tell systemd that the process has started (sd_notify). Before that it sends no SIGHUP."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if address.startswith("@"):  # in the abstract namespace
        address = f"\0{address[1:]}"
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told, suppress(OSError):
            told.sendto(b"READY=1", address)
