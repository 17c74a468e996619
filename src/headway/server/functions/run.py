"""`headway serve module:function`: from the socket to the exit status."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console

from headway import __version__
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.server import clock
from headway.server.banner import served_at
from headway.server.config.config import ServerConfig
from headway.server.config.durations import SECOND, format_duration
from headway.server.config.references import check_function
from headway.server.config.show import keys_of, sound
from headway.server.config.sources import DEFAULT, Layers
from headway.server.functions.app import make_app
from headway.server.functions.calls import TURN
from headway.server.functions.codecs import KINDS
from headway.server.functions.routes import AT
from headway.server.functions.service import FunctionService, checked_keys, made_service
from headway.server.functions.target import find
from headway.server.intake.limits.spend import SpendControl
from headway.server.jobs.host import JobHost
from headway.server.jobs.opening import open_jobs
from headway.server.ledger.opening import open_service
from headway.server.listening.descriptors import raise_limit
from headway.server.listening.http_server import HttpServer
from headway.server.listening.sockets import BESIDES, listen
from headway.server.observe.access import AccessLog
from headway.server.observe.logs import Log, Logs, bridged
from headway.server.reload import Reload

if TYPE_CHECKING:
    from headway.server.ledger.ledger_service import LedgerService

CLOSING = 5.0  # seconds for the function to end, once no caller waits for it
LOOK = 0.05  # seconds between two checks of whether all requests are answered
# The sections that apply to functions.
OURS = frozenset({"server", "logs", "jobs", "keys", "ledger", "prices"})


class FunctionConfig(ServerConfig):
    """The settings of a server of one function. Its lanes are those of the function's decorator."""

    has_lanes: ClassVar[bool] = False


def serve_function(
    name: str, config: ServerConfig, layers: Layers, console: Console, reload: Reload
) -> int:
    """Serve until SIGTERM or ctrl-C. The first signal drains, the second ends at once. Returns 0.

    reload: how SIGHUP reads the configuration again.

    Raises SettingError for a function that cannot be found or batched, for settings that do not
    apply to functions, or for a port that cannot be listened on.
    """
    check_settings(config, layers)
    service = made_service(find(name), config)
    sys.setswitchinterval(TURN)
    gc.collect()
    gc.freeze()  # these objects stay; scanning them again would hold up all calls
    logs = Logs(config.logs, console)
    try:
        with bridged(logs.log, config.logs.level):
            asyncio.run(_Server(service, config, logs, reload).run())
            logs.log.info("stopped", status=0)
        if not _closed(service):
            logs.log.warning("the function has not ended: it is left behind")
            logs.close()
            os._exit(0)  # Python would wait for its thread
    finally:
        logs.close()
    return 0


def validate_function(name: str, path: Path | None) -> str:
    """Summarize what would be served, with a note and warnings. Raises SettingError if the server
    could not start, as far as that is seen without importing the function."""
    config, layers = FunctionConfig.load_with_origins(path, {})
    check_settings(config, layers)
    checked_keys(config.keys)
    note = check_function(name)
    summary = sound(path, f"function {name}, {keys_of(config)}")
    return "\n".join((summary, note, *config.warnings))


def check_settings(config: ServerConfig, layers: Layers) -> None:
    """Raise SettingError for settings that do not apply to functions."""
    given = {str(where[0]) for where, source in layers.origins.items() if source != DEFAULT}
    if strange := given - OURS:
        raise SettingError(
            f"a function has no {', '.join(sorted(strange))}: how it is batched is said with "
            "@headway.batch"
        )
    if config.server.default_lane:
        raise SettingError("server.default_lane: a function's lanes are its decorator's")
    if config.prices.charges_tokens:
        raise SettingError("a function has no tokens: of the prices, only per_hour applies")
    if "prices" in given and not config.ledger.url:
        raise SettingError("prices: what calls of a function cost is kept in a ledger, and none is")


def _closed(service: FunctionService) -> bool:
    """Close the batcher. False: its function still runs after CLOSING seconds."""
    closing = threading.Thread(target=service.close, daemon=True)
    closing.start()
    closing.join(CLOSING)
    return not closing.is_alive()


def ledger_of(service: FunctionService, config: ServerConfig, log: Log) -> "LedgerService | None":
    """The ledger of the service; None without a store. Raises SettingError if the store cannot be
    opened."""
    if not service.book:
        return None
    spend = SpendControl(config.keys, config.prices, clock.day)
    return open_service(config, spend, [service.book], log)


def job_host(service: FunctionService, config: ServerConfig) -> JobHost:
    """What jobs need of the function. Raises SettingError if `jobs.lane` does not exist."""
    target, lanes = service.target, service.batcher.load.lanes
    unhurried = [name for name, each in lanes.items() if each.lane.budget.e2e == NEVER]
    lane = config.jobs.lane or [*lanes, *unhurried][-1]
    if lane not in lanes:
        raise SettingError(f"jobs.lane: {target.name} has no lane {lane!r}")
    most = lanes[lane].lane.max_waiting
    paths = {f"{AT}/{target.name}": KINDS}
    streams = service.about.streams
    return JobHost(
        service.keys, paths, lane, most, objects=frozenset(), streams=lambda path: streams
    )


class _Server:
    def __init__(
        self, service: FunctionService, config: ServerConfig, logs: Logs, reload: Reload
    ) -> None:
        self.service, self.config, self.logs, self._reload = service, config, logs, reload
        self.jobs = open_jobs(config, job_host(service, config), logs.log)
        self.ledger = ledger_of(service, config, logs.log)
        self._app = make_app(service, config, self.jobs, self.ledger)
        heard = AccessLog(self._app, logs.log, config.logs.access)
        held = config.server.connections
        self.web = HttpServer(heard, config.server, raise_limit(held.most + BESIDES))
        self._leaving: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until a signal."""
        listening = listen(self.config.server.host, self.config.server.port)
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._leave)
        watching = self._reload.begin(self.config, self.service.use_keys, self.logs.log)
        web = loop.create_task(self.web.serve([listening]))
        self._greet(listening)
        try:
            if self.ledger:
                self.ledger.start()
            if self.jobs:
                await self.jobs.start(self._app)
            await web
        finally:
            if watching:
                watching.cancel()
            if self.jobs:
                await self.jobs.close()
            if self.ledger:
                await self.ledger.close()
            if self._leaving:
                self._leaving.cancel()
                with suppress(asyncio.CancelledError):
                    await self._leaving

    def _greet(self, listening: socket.socket) -> None:
        target, url = self.service.target, self._url(listening)
        path = f"{url}/functions/{target.name}"
        if self.config.logs.format == "console":
            lanes = ", ".join(self.service.batcher.settings.lanes)
            about = [f"headway {__version__} serves {target.name}", f"  on {path}"]
            size = self.service.batcher.settings.size
            about.append(f"  at most {size} items a call; lanes: {lanes}")
            self.logs.say("\n".join(about))
        for warning in self.config.warnings:
            if self.config.logs.format == "console":
                self.logs.say(f"  {warning}", "bold yellow")
            else:
                self.logs.log.warning(warning)
        self.logs.log.info("ready", url=path, function=target.name, pid=os.getpid())

    def _url(self, listening: socket.socket) -> str:
        return served_at(self.config.server.host, listening.getsockname()[1])

    def _leave(self) -> None:
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._drain())
        else:
            self.web.should_exit = self.web.force_exit = True

    async def _drain(self) -> None:
        """Accept nothing more, and let open requests end within the drain timeout."""
        timeout, self.service.draining = self.config.server.drain_timeout, True
        if self.jobs:
            await self.jobs.drain()
        self.logs.log.info(
            f"draining: {self.service.open} requests have {format_duration(timeout)} to end; "
            "a second signal ends the server at once"
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout / SECOND):
                while self.service.open:
                    await asyncio.sleep(LOOK)
        self.web.should_exit = True
