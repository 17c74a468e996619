"""`headway serve`: starts the engine process and the HTTP server, and ends both."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from headway import __version__
from headway.errors import EngineDownError
from headway.server import clock
from headway.server.app import job_host, make_app
from headway.server.banner import banner, served_at
from headway.server.config.config import ServerConfig
from headway.server.config.durations import SECOND, format_duration
from headway.server.config.engine_options import engine_options
from headway.server.config.validate import check_files
from headway.server.engine.handle import EngineState
from headway.server.engine.messages import EngineOptions, Welcome
from headway.server.engine.restarts import RestartingEngine
from headway.server.intake.service import Service
from headway.server.intake.tokenizing import AsyncTokenizer
from headway.server.jobs.opening import open_jobs
from headway.server.listening.descriptors import raise_limit
from headway.server.listening.http_server import HttpServer
from headway.server.listening.sockets import BESIDES, listen
from headway.server.observe.access import AccessLog
from headway.server.observe.logs import Logs, bridged
from headway.server.observe.tracing import start_tracing
from headway.server.reload import Reloading
from headway.server.versions.opening import open_versions

if TYPE_CHECKING:
    from headway.server.observe.spans import Spans

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Reload(NamedTuple):
    """How the configuration is read again."""

    load: Callable[[], ServerConfig]
    watched: Path | None = None  # read again when this file has changed; None: on SIGHUP alone


def serve(config: ServerConfig, console: Console, reload: Reload | None = None) -> int:
    """Serve until SIGTERM or ctrl-C. The exit status is 1 if the engine is down for good.

    reload: how SIGHUP reads the configuration again; None: SIGHUP ends the process.

    The first signal drains: nothing more is accepted, and what runs may end within the drain
    timeout. The second ends the server at once. Raises HeadwayError if the port cannot be listened
    on or the model cannot be loaded.
    """
    check_files(config)  # in the time in which torch would be imported
    logs = Logs(config.logs, console)
    try:
        with bridged(logs.log, config.logs.level):
            running = Server(config, logs, reload)
            status = asyncio.run(running.run())
            logs.log.info("stopped", status=status)
    finally:
        logs.close()
    if running.engine.pid:  # it cannot be ended, and Python would wait for that
        os._exit(status)
    return status


class Server:
    """One server, from its socket to its exit status."""

    def __init__(self, config: ServerConfig, logs: Logs, reload: Reload | None = None) -> None:
        self.versions = open_versions(config, logs.log)
        self.config, self.logs, self.log = config, logs, logs.log
        options = EngineOptions(**engine_options(config))
        self.engine = RestartingEngine(options, config.engine.restart, self.log)
        self.service = Service(config, self.engine)
        self.engine.renewed = self.service.engine_ready
        self.jobs = open_jobs(config, job_host(self.service), self.log)
        if self.versions:
            self.versions.attach(self.service)
        self._app = make_app(self.service, self.jobs, self.versions)
        self._reload = reload
        heard = AccessLog(self._app, self.log, config.logs.access)
        held = config.server.connections
        self.web = HttpServer(heard, config.server, raise_limit(held.most + BESIDES))
        self._began = clock.now()
        self._spans: Spans | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._standing: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[Welcome] | None = None

    async def run(self) -> int:
        """Serve until a signal or a failure. Returns the exit status: 1 if the engine is down."""
        listening = listen(self.config.server.host, self.config.server.port)
        self._spans = start_tracing(self.service, listening.getsockname()[1])
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self.leave)
        watching = self._watch_configuration(loop)
        web = loop.create_task(self.web.serve([listening]))
        try:
            self._loading = loop.create_task(self._load())
            with suppress(asyncio.CancelledError):  # by a signal
                self._greet(await self._loading, listening)
                if self.jobs:
                    await self.jobs.start(self._app)
                self._standing = loop.create_task(self._stand())
            await web
        except EngineDownError as error:  # not what it was asked, but how it went
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
            down = self.engine.state is EngineState.DOWN
            await self.engine.close()
            self.service.close()
            if self._spans:
                await asyncio.to_thread(self._spans.close)
        return 1 if down else 0

    def _watch_configuration(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
        """Read the keys again on SIGHUP, and if asked for, when the file has changed."""
        if self._reload is None:
            return None
        reloading = Reloading(self._reload.load, self.service, self.log)
        loop.add_signal_handler(signal.SIGHUP, reloading.reload)
        path = self._reload.watched
        return loop.create_task(reloading.watch(path)) if path else None

    async def _load(self) -> Welcome:
        if not self._banner:
            self.log.info("starting", version=__version__, pid=os.getpid())
        welcome = await self.engine.start(self._show_progress)
        tokenizer = await asyncio.to_thread(AsyncTokenizer, welcome.tokenizer, Path(welcome.folder))
        gc.collect()
        gc.freeze()  # what is there now stays: to look through it again would hold the loop
        self.service.ready(tokenizer, welcome.eos, welcome.traits, welcome.card)
        if self.versions:
            self.versions.begin()
        return welcome

    async def _stand(self) -> None:
        """Restart engines that fail; when no more are started, end the server."""
        await self.engine.stand()
        if self.engine.state is EngineState.DOWN:
            self.web.should_exit = True

    def leave(self) -> None:
        """On a signal: the first one drains, the second one ends the server at once."""
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
            f"draining: {self.service.admission.open} requests have "
            f"{format_duration(timeout)} to end; once more to end at once"
        )
        if self.jobs:
            await self.jobs.drain()
        await self.engine.drain(timeout / SECOND)
        self.web.should_exit = True

    # -- what is said

    @property
    def _banner(self) -> bool:
        """Whether the output is for people."""
        return self.config.logs.format == "console"

    def _show_progress(self, progress: str) -> None:
        if self._banner:
            self.logs.say(progress, "dim")
        else:
            self.log.info("loading", what=progress)

    def _greet(self, welcome: Welcome, listening: socket.socket) -> None:
        """Show the banner and the warnings, then log that the server is ready."""
        port = listening.getsockname()[1]
        warnings = list(self.config.warnings)
        if welcome.doubt:
            warnings.append(f"the cost file is unreliable: {welcome.doubt}")
        if self._banner:
            self.logs.say(banner(self.config, welcome, port))
            for warning in warnings:
                self.logs.say(f"  {warning}", "bold yellow")
        else:
            for note in self.config.notes:
                self.log.info(note)
            for warning in warnings:
                self.log.warning(warning)
        if self.versions:
            self.versions.greet()
        self.log.info(
            "ready",
            url=served_at(self.config.server.host, port),
            model=self.config.model.served_name,
            dtype=welcome.dtype,
            device=welcome.device,
            engine_pid=self.engine.pid,
            took_s=round((clock.now() - self._began) / SECOND, 1),
        )
