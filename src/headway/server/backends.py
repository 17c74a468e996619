"""Backends: a server's engine and function processes, from start to end."""

import asyncio
import gc
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from headway.executor.torch.loading.checkpoint import locate
from headway.models import EMBEDDED
from headway.server.config.config import ServerConfig
from headway.server.config.engine_options import engine_options
from headway.server.config.memory import engines_beside, named
from headway.server.config.validate import shares_of
from headway.server.engine.handle import EngineState
from headway.server.engine.messages import EngineOptions, Welcome
from headway.server.engine.restarts import RestartingEngine
from headway.server.functions.remote import RemoteFunction
from headway.server.intake.model import Model
from headway.server.intake.tokenizing import AsyncTokenizer
from headway.server.observe.logs import Log
from headway.text.loaded_tokenizer import import_templates

Said = Callable[[str], object]
Entering = Callable[[Model], Awaitable[object]]
Began = Callable[[Model], object]
UNNAMEABLE = re.compile(r"[^\w.-]")  # characters not allowed in a file's name


class Backends:
    """All backends of a server. Each one starts, fails and is restarted on its own."""

    def __init__(self, config: ServerConfig, log: Log) -> None:
        self._config, self._many = config, not config.is_one
        self.engines = [
            RestartingEngine(
                self._options(entry),
                entry.engine.restart,
                self._log(log, entry.model.served_name),
            )
            for entry in config.engines
        ]
        self.functions = {
            each.served_name: RemoteFunction(each, config, self._log(log, each.served_name))
            for each in config.functions
        }

    def _log(self, log: Log, name: str) -> Log:
        """The log. With several backends, each line names its backend."""
        return log.bind(model=name) if self._many else log

    def _options(self, entry: ServerConfig) -> EngineOptions:
        """The engine's options. With several backends, the journal's name has the engine's name."""
        options = EngineOptions(**engine_options(entry))
        if not (self._many and options.journal):
            return options
        path, name = Path(options.journal), UNNAMEABLE.sub("_", entry.model.served_name)
        return replace(options, journal=str(path.with_name(f"{path.stem}-{name}{path.suffix}")))

    def __iter__(self) -> Iterator[RestartingEngine | RemoteFunction]:
        yield from self.engines
        yield from self.functions.values()

    async def start(
        self, models: list[Model], say: Said, entering: Entering, began: Began
    ) -> list[Welcome]:
        """Start all backends. Raises the error of a backend that cannot start. say: called with
        lines about the progress. entering: awaited with each model once it is loaded. began: called
        with it then, before any request is let in: others may still be loading while it answers."""
        if self._many or self._config.model.memory:
            shares = await asyncio.to_thread(shares_of, self._config, _folder)
            beside = engines_beside(self._config)
            for engine, model in zip(self.engines, models, strict=True):
                engine.give_memory(shares[model.name], beside)
        pairs = zip(self.engines, models, strict=True)
        async with asyncio.TaskGroup() as group:
            loading = [group.create_task(self._load(*each, say, entering, began)) for each in pairs]
            if loading:  # use this process's idle time while the engines load
                group.create_task(asyncio.to_thread(import_templates))
            for function in self.functions.values():
                group.create_task(self._import(function, say))
        gc.collect()
        gc.freeze()  # these objects stay alive, and scanning them again would delay the loop
        return [each.result() for each in loading]

    async def _load(
        self,
        engine: RestartingEngine,
        model: Model,
        say: Said,
        entering: Entering,
        began: Began,
    ) -> Welcome:
        with self._named(model.name):
            welcome = await engine.start(self._prefixed(say, model.name))
        tokenizer = await asyncio.to_thread(AsyncTokenizer, welcome.tokenizer, Path(welcome.folder))
        await entering(model)
        model.loaded(welcome.work, welcome.load_ns)
        model.ready(tokenizer, welcome.eos, welcome.traits, welcome.card)
        began(model)  # nothing is awaited since, so no request has come
        return welcome

    async def _import(self, function: RemoteFunction, say: Said) -> None:
        with self._named(function.name):
            await function.start(self._prefixed(say, function.name))

    def _named(self, name: str) -> AbstractContextManager[None]:
        """A context. With several backends, errors raised in it name this one."""
        return named(name if self._many else "")

    def _prefixed(self, say: Said, name: str) -> Said:
        return (lambda text: say(f"{name}: {text}")) if self._many else say

    async def stand(self) -> None:
        """Restart backends that fail. Returns when none is left that could be restarted."""
        await asyncio.gather(*[each.stand() for each in self])

    @property
    def are_down(self) -> bool:
        """Whether all backends are down for good."""
        return all(each.state is EngineState.DOWN for each in self)

    @property
    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [each.pid for each in self if each.pid]

    async def drain(self, timeout: float, whole: float) -> None:
        """Let all backends finish their requests, within `timeout` seconds. whole: seconds of the
        server's whole drain, of which `timeout` are left."""
        await asyncio.gather(*[each.drain(timeout, whole) for each in self])

    async def close(self) -> None:
        """End all backends now."""
        await asyncio.gather(*[each.close() for each in self])


def _folder(path: str) -> Path:
    """A checkpoint's folder, fetched from the hub if needed."""
    return locate(path or EMBEDDED)
