"""`headway serve`: the engine process, the front on its socket, and how both leave."""

import asyncio
import gc
import signal
import socket
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from rich.console import Console

from headway import __version__
from headway.errors import SettingError
from headway.server.app import make_app
from headway.server.config import ServerConfig
from headway.server.durations import SECOND, written
from headway.server.front import Front
from headway.server.remote import Remote
from headway.server.texts import Texts
from headway.server.tracing import traced
from headway.server.wire import EngineOptions, Welcome

if TYPE_CHECKING:
    from headway.server.spans import Spans

LAST_WORDS = 5  # seconds for connections to end, once nothing is being answered
KEEP_ALIVE = 75  # seconds: proxies keep an idle connection for 60, and would meet its end
UNREAD = 60_000  # milliseconds for which a peer may take nothing of what it is sent
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(config: ServerConfig, console: Console) -> int:
    """Until SIGTERM or ctrl-C. Exit status: 0; 1 where the engine has died.

    The first signal drains: nothing is accepted, what runs may end within the drain timeout. The
    second ends at once. Raises HeadwayError if the port or the model cannot be had.
    """
    return asyncio.run(Running(config, console).run())


def listen(host: str, port: int) -> socket.socket:
    """Taken before the model is loaded, so that a port in use is said at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        raise SettingError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another with --port"
        ) from error
    if sys.platform == "linux":  # who stopped reading, and stays, would keep its buffers for ever
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD)
    return listening


class Web(uvicorn.Server):
    """Its signals are ours."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


class Running:
    """One server, from its socket to its end."""

    def __init__(self, config: ServerConfig, console: Console) -> None:
        self.config, self.console = config, console
        self.engine = Remote(EngineOptions(**config.to_engine()))
        self.front = Front(config, self.engine)
        settings = uvicorn.Config(
            make_app(self.front),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=LAST_WORDS,
        )
        self.web = Web(settings)
        self._spans: Spans | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[Welcome] | None = None

    async def run(self) -> int:
        listening = listen(self.config.server.host, self.config.server.port)
        self._spans = traced(self.front, listening.getsockname()[1])
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self.leave)
        web = loop.create_task(self.web.serve([listening]))
        try:
            self._loading = loop.create_task(self._load())
            with suppress(asyncio.CancelledError):  # by a signal
                self._greet(await self._loading, listening)
            await web
        finally:
            self.web.should_exit = True
            await web
            if self._leaving:
                self._leaving.cancel()
            down = self.engine.down
            await self.engine.close()
            self.front.close()
            if self._spans:
                await asyncio.to_thread(self._spans.close)
        return 1 if down else 0

    async def _load(self) -> Welcome:
        welcome = await self.engine.start(lambda said: self.console.print(said, style="dim"))
        texts = await asyncio.to_thread(Texts, welcome.tokenizer, Path(welcome.folder))
        gc.collect()
        gc.freeze()  # what is there now stays: to look through it again would hold the loop
        self.front.ready(texts, welcome.eos)
        return welcome

    def leave(self) -> None:
        """On a signal: the first drains, the second does not wait for that."""
        if self._loading and not self._loading.done():
            self._loading.cancel()
            self.web.should_exit = True
        elif self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._drain())
        else:
            self.web.should_exit = self.web.force_exit = True

    async def _drain(self) -> None:
        timeout = self.config.server.drain_timeout
        self.console.print(
            f"draining: {self.front.door.open} requests have {written(timeout)} to end; "
            "once more to end at once"
        )
        await self.engine.drain(timeout / SECOND)
        self.web.should_exit = True

    def _greet(self, welcome: Welcome, listening: socket.socket) -> None:
        """The banner."""
        say, host = self.console.print, self.config.server.host
        port = listening.getsockname()[1]
        where = f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"
        model = f"{self.config.model.served} ({welcome.dtype}, {welcome.device})"
        say(f"headway {__version__} serves {model} on {where}", highlight=False)
        for name, lane in self.config.lanes.items():
            mark = " (default)" if name == self.config.default_lane else ""
            limits = [
                f"{field} {written(getattr(lane, field))}"
                for field in ("ttft", "tpot", "e2e", "queue")
            ]
            say(f"  lane {name}{mark}: {', '.join(limits)}", highlight=False)
        say(f"  KV: {welcome.memory}", highlight=False)
        for warning in self.config.warnings:
            say(f"  {warning}", style="bold yellow", highlight=False)
