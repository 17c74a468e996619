"""Reloading: reads the configuration again while serving, and applies its keys."""

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import ValidationError

from headway.errors import SettingError, first_line
from headway.server.config.config import ServerConfig
from headway.server.config.problems import describe_problems
from headway.server.config.sections.keys import KeySettings, weights_of
from headway.server.intake.service import Service
from headway.server.observe.logs import Log

LOOK = 1.0  # seconds between two looks at the file
Use = Callable[[ServerConfig], None]
Written = tuple[int, int]  # when a file was last written (nanoseconds), and its size
REFUSED = "configuration not reloaded: all stays as it was"


class Reload(NamedTuple):
    """How a server reads its configuration again."""

    load: Callable[[], ServerConfig]  # reads the file, the environment and the flags
    watched: Path | None = None  # reload when this file changes; None: only on SIGHUP
    early: threading.Event = threading.Event()  # set if a SIGHUP came before `begin`
    seen: Written = (0, 0)  # the watched file, before it was loaded

    @classmethod
    def of(
        cls, load: Callable[[], ServerConfig], watched: Path | None, early: threading.Event
    ) -> Self:
        """To be called before the configuration is loaded: what is written later is then reloaded,
        also if it was written while the server started."""
        return cls(load, watched, early, _written(watched) if watched else (0, 0))

    def begin(self, config: ServerConfig, use: Use, log: Log) -> asyncio.Task[None] | None:
        """Reload on SIGHUP from now on and, if a file is watched, when it changes.

        config: as loaded last. use: as in Reloading. Returns the task that watches the file; it
        never ends by itself.
        """
        loop = asyncio.get_running_loop()
        reloading = Reloading(self.load, config, use, log)
        loop.add_signal_handler(signal.SIGHUP, reloading.reload)
        if self.early.is_set():
            reloading.reload()
        if self.watched is None:
            return None
        return loop.create_task(reloading.watch(self.watched, self.seen))


class Reloading:
    """Adds, changes and removes keys at once. Other changes are logged by name; they need a restart
    or a version. If the file is wrong, nothing changes.

    A reload cannot add the first key or remove the last one: a single edit would then shut out
    every client, or let every client in.
    """

    def __init__(
        self, load: Callable[[], ServerConfig], config: ServerConfig, use: Use, log: Log
    ) -> None:
        """load: as in Reload. config: as loaded last. use: checks the keys of a configuration, and
        uses them from then on; if they cannot be used, it raises SettingError and changes nothing.
        """
        self._load, self._use, self._log = load, use, log
        self._loaded = self._started = config  # what is not reloaded stays as at the start

    def reload(self) -> None:
        """Read the configuration again. Called on SIGHUP and when the file has changed."""
        try:
            found = self._load()
            if bool(found.keys) != bool(self._loaded.keys):
                what = "the last key went" if self._loaded.keys else "the first key came"
                raise SettingError(f"{what}: that needs a restart")
            self._use(found)
        except SettingError as error:
            self._log.error(REFUSED, cause=str(error))
            return
        except Exception as error:  # the edge of the watching, which goes on
            self._log.error(REFUSED, cause=first_line(error), exc_info=True)
            return
        self._loaded = found
        self._log.info("keys reloaded", keys=len(found.keys))
        for name in ServerConfig.model_fields:
            if name != "keys" and getattr(self._started, name) != getattr(found, name):
                by_version = name in ("lanes", "engine") and self._started.versions.store
                how = "propose a version, or restart" if by_version else "restart"
                self._log.warning(f"{name} has changed too, and is not reloaded: {how}")

    async def watch(self, path: Path, seen: Written) -> None:
        """Check the file once a second, and reload when it was written. Never returns. seen: the
        file before it was loaded last."""
        while True:
            await asyncio.sleep(LOOK)
            if (now := _written(path)) != seen and now:
                seen = now
                self.reload()


class ModelKeys:
    """The keys of a server of models, while it serves."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # What the engines were started with. No version changes it.
        self._weights = weights_of(service.config.keys, count=True)
        self._is_fair = any(each.is_fair for each in service.config.entries)

    def use(self, found: ServerConfig) -> None:
        """Use this configuration's keys from now on. Raises SettingError if they cannot be used,
        and then changes nothing."""
        service = self._service
        in_force = self._checked(found)
        service.keys.replace(found.keys, service.lanes, service.config.default_lane)
        service.spend.replace(found.keys)
        service.config = in_force

    def _checked(self, found: ServerConfig) -> ServerConfig:
        """The configuration in force, with the keys that were found. Raises SettingError."""
        for lane in {*found.lanes} ^ {*self._service.lanes}:
            raise SettingError(f"lanes.{lane}: lanes neither come nor go while requests are served")
        made = _with_keys(self._service.config, found.keys)
        if self._is_fair or any(each.is_fair for each in made.entries):
            self._check_weights(found.keys)
        return made

    def _check_weights(self, keys: Sequence[KeySettings]) -> None:
        """Raise SettingError for a tenant that the engines do not know, or whose weight they know
        otherwise. A tenant that went does not matter to them."""
        for tenant, weight in weights_of(keys, count=True).items():
            what = f"the weight of tenant {tenant} has changed"
            if tenant not in self._weights:
                what = f"tenant {tenant} is new"
            if self._weights.get(tenant) != weight:
                raise SettingError(
                    f"tenants share their lanes by weight, and {what}: that needs a restart"
                )


def _with_keys(config: ServerConfig, keys: Sequence[KeySettings]) -> ServerConfig:
    """The configuration with other keys. Raises SettingError if they do not go with the rest, such
    as a cap on money where there are no prices."""
    fields = {name: getattr(config, name) for name in ServerConfig.model_fields}
    try:
        return ServerConfig(**fields | {"keys": keys})
    except ValidationError as error:
        source = "the new keys do not go with the settings in force, which only a restart changes"
        raise SettingError(describe_problems(error, lambda where: source)[0]) from None


def _written(path: Path) -> Written:
    """As Written; zeros if the file cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
