"""`headway serve`: starts and ends the engine processes and the HTTP server."""

import asyncio
import os
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console

from headway import __version__
from headway.errors import EngineDownError
from headway.server import clock
from headway.server.app import job_host, make_app
from headway.server.backends import Backends
from headway.server.banner import banner, served_at
from headway.server.config.config import ServerConfig
from headway.server.config.durations import SECOND, format_duration
from headway.server.config.validate import check_files
from headway.server.engine.messages import Welcome
from headway.server.functions.part import FunctionsPart
from headway.server.intake.model import Model
from headway.server.intake.service import Service
from headway.server.jobs.host import JobHost
from headway.server.jobs.opening import open_jobs
from headway.server.ledger.engine_book import EngineBook
from headway.server.ledger.opening import open_ledger
from headway.server.listening.descriptors import raise_limit
from headway.server.listening.http_server import HttpServer
from headway.server.listening.sockets import BESIDES, listen
from headway.server.observe.access import AccessLog
from headway.server.observe.logs import Logs, bridged
from headway.server.observe.tracing import start_tracing
from headway.server.reload import ModelKeys, Reload
from headway.server.versions.opening import open_versions

if TYPE_CHECKING:
    from headway.server.observe.spans import Tracing

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(config: ServerConfig, console: Console, reload: Reload | None = None) -> int:
    """Serve until SIGTERM or ctrl-C. Returns the exit status: 1 if all backends are down for good.

    reload: how SIGHUP reads the configuration again; None: SIGHUP ends the process.

    The first signal drains: no more requests are accepted, and running requests may end within the
    drain timeout. The second signal ends the server at once. Raises HeadwayError if the server
    cannot listen on the port or a model cannot be loaded.
    """
    check_files(config)  # fail before any process starts and imports torch
    logs = Logs(config.logs, console)
    try:
        with bridged(logs.log, config.logs.level):
            running = Server(config, logs, reload)
            status = asyncio.run(running.run())
            logs.log.info("stopped", status=status)
    finally:
        logs.close()
    if running.backends.pids:  # a process could not be ended, and Python would wait for it
        os._exit(status)
    return status


class Server:
    """One server, from its socket to its exit status."""

    def __init__(self, config: ServerConfig, logs: Logs, reload: Reload | None = None) -> None:
        self.versions = open_versions(config, logs.log)
        self.config, self.logs, self.log = config, logs, logs.log
        self.backends = Backends(config, self.log)
        functions = self.backends.functions
        self.service = Service(config, *self.backends.engines, functions=functions)
        for engine, model in zip(self.backends.engines, self.service.models, strict=True):
            engine.renewed, engine.gave_up = model.engine_ready, model.engine_lost
        self.functions = FunctionsPart(self.service, functions) if functions else None
        self.jobs = open_jobs(config, self._job_host, self.log)
        self.ledger = open_ledger(self.service, self.log, self._function_books)
        if self.versions:
            self.versions.attach(self.service)
        parts = self.functions, self.ledger, self.versions
        self._app = make_app(self.service, self.jobs, *parts)
        self._reload = reload
        heard = AccessLog(self._app, self.log, config.logs.access)
        held = config.server.connections
        self.web = HttpServer(heard, config.server, raise_limit(held.most + BESIDES))
        self._began = clock.now()
        self._spans: Tracing | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._standing: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[list[Welcome]] | None = None
        self._is_broken = False  # one of its own tasks has failed

    def _function_books(self) -> list[EngineBook]:
        """Have the functions keep books for the ledger, and return the books."""
        most = self.config.ledger.rows
        return [each.keep(self.config.prices, most) for each in self.backends.functions.values()]

    async def run(self) -> int:
        """Serve until a signal or a failure. Returns the exit status: 1 if an engine went down
        while loading, if all backends are down, or if a task of its own has failed."""
        listening = listen(self.config.server.host, self.config.server.port)
        self._spans = start_tracing(self.service, listening.getsockname()[1])
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self.leave)
        watching = self._watch_configuration()
        web = loop.create_task(self.web.serve([listening]))
        if self.ledger:
            self.ledger.start()  # before loading, so that refusals in that time are kept
        try:
            self._loading = loop.create_task(self._load())
            with suppress(asyncio.CancelledError):  # a signal cancels the loading
                self._greet(await self._loading, listening)
                if self.jobs:
                    await self.jobs.start(self._app)
                self._standing = loop.create_task(self._stand())
            await web
        except EngineDownError as error:  # the process failed; settings errors are raised
            self.log.critical("engine down", cause=str(error))
            return 1
        finally:
            self.web.should_exit = True
            await web
            for task in (self._leaving, self._standing, watching):
                if task:
                    task.cancel()
            if self.versions:
                await self.versions.close()
            if self.jobs:
                await self.jobs.close()
            down = self.backends.are_down
            await self.backends.close()
            self.service.close()
            if self.ledger:
                await self.ledger.close()
            if self._spans:
                await asyncio.to_thread(self._spans.close)
        return 1 if down or self._is_broken else 0

    def _watch_configuration(self) -> asyncio.Task[None] | None:
        """Reload the keys on SIGHUP and, if asked for, when the file changes."""
        if self._reload is None:
            return None
        return self._reload.begin(self.service.config, ModelKeys(self.service).use, self.log)

    async def _load(self) -> list[Welcome]:
        if not self._banner:
            self.log.info("starting", version=__version__, pid=os.getpid())
        try:
            models, said = list(self.service.models), self._show_progress
            welcomes = await self.backends.start(models, said, self._enter, self._begin)
        except BaseExceptionGroup as errors:  # the first error is enough
            raise _first(errors) from None
        if self.functions:
            self.functions.document(self._app)
        return welcomes

    async def _enter(self, model: Model) -> None:
        """Store with which version a model begins that has just been loaded."""
        if self.versions:
            await self.versions.enter(model)

    def _begin(self, model: Model) -> None:
        """Have a model that has just been loaded begin with the version in force."""
        if self.versions:
            self.versions.begin(model)

    async def _stand(self) -> None:
        """Restart backends that fail. End the server once all are down for good, or once restarting
        itself has failed: a dead engine would stay behind a living front."""
        try:
            await self.backends.stand()
        except Exception:  # the task's edge
            self._fail("restarts have failed: the server ends")
            self.leave()
        if self.backends.are_down:
            self.web.should_exit = True

    @property
    def _job_host(self) -> JobHost:
        host = job_host(self.service)
        return self.functions.with_jobs(host) if self.functions else host

    def leave(self) -> None:
        """Handle a signal. During loading, end the server. Otherwise the first signal drains, and
        the second one ends the server at once."""
        if self._loading and not self._loading.done():
            self._loading.cancel()
            self.web.should_exit = True
        elif self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._drain())
        else:
            self.web.should_exit = self.web.force_exit = True

    async def _drain(self) -> None:
        if self._standing:
            self._standing.cancel()
        timeout = self.config.server.drain_timeout
        self.log.info(
            f"draining: {self._open} requests have "
            f"{format_duration(timeout)} to end; a second signal ends the server at once"
        )
        try:
            if self.jobs:
                await self.jobs.drain()
            left = await self.service.drain_routes(timeout / SECOND)
            await self.backends.drain(left, timeout / SECOND)
        except Exception:  # the task's edge
            self._fail("the drain has failed: the server ends at once")
        self.web.should_exit = True

    def _fail(self, what: str) -> None:
        """Log the error that is being handled, which nobody foresaw. The exit status is 1."""
        self._is_broken = True
        self.log.critical(what, exc_info=True)

    @property
    def _open(self) -> int:
        """How many requests are being answered."""
        return self.service.open + (self.functions.open if self.functions else 0)

    # -- output

    @property
    def _banner(self) -> bool:
        """Whether the output is for people, and so has a banner."""
        return self.config.logs.format == "console"

    def _show_progress(self, progress: str) -> None:
        if self._banner:
            self.logs.say(progress, "dim")
        else:
            self.log.info("loading", what=progress)

    def _greet(self, welcomes: list[Welcome], listening: socket.socket) -> None:
        """Show the banner and the warnings, then log that the server is ready."""
        port, config = listening.getsockname()[1], self.config
        warnings = list(config.warnings)
        for entry, welcome in zip(config.engines, welcomes, strict=True):
            whose = f"{entry.model.served_name}: " if not config.is_one else ""
            warnings += [f"{whose}{warning}" for warning in welcome.cost_warnings]
        if self._banner:
            self.logs.say(banner(config, welcomes, port))
            for warning in warnings:
                self.logs.say(f"  {warning}", "bold yellow")
        else:
            for note in config.all_notes:
                self.log.info(note)
            for warning in warnings:
                self.log.warning(warning)
        if self.versions:
            self.versions.greet()
        for function in self.backends.functions.values():
            for note in function.about.notes:
                self.log.warning(f"{function.about.name}: {note}")
        pids: dict[str, object] = {"engine_pid": next(iter(self.backends.pids), 0)}
        if not config.is_one:
            names = [*[each.name for each in self.service.models], *self.backends.functions]
            each = zip(names, self.backends, strict=True)
            pids = {"engine_pids": {name: backend.pid for name, backend in each}}
        self.log.info(
            "ready",
            url=served_at(config.server.host, port),
            model=", ".join(model.served_name for model in config.models),
            dtype=", ".join(dict.fromkeys(each.dtype for each in welcomes)),
            device=", ".join(dict.fromkeys(each.device for each in welcomes)),
            **pids,
            took_s=round((clock.now() - self._began) / SECOND, 1),
        )


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
