"""Reloading: reads the configuration again while serving, and applies its keys."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from headway.errors import SettingError, first_line
from headway.server.config.config import ServerConfig
from headway.server.config.problems import describe_problems
from headway.server.config.sections.keys import KeySettings, weights_of
from headway.server.intake.service import Service
from headway.server.observe.logs import Log

LOOK = 1.0  # seconds between two looks at the file
REFUSED = "configuration not reloaded: all stays as it was"


class Reloading:
    """Adds, changes and removes keys at once. Other changes are logged by name; they need a restart
    or a version. If the file is wrong, nothing changes.

    A reload cannot add the first key or remove the last one: a single edit would then shut out
    every client, or let every client in.
    """

    def __init__(self, load: Callable[[], ServerConfig], service: Service, log: Log) -> None:
        """load: reads the file, the environment and the flags again. Raises SettingError."""
        self._load, self._service, self._log = load, service, log
        self._loaded = service.config
        # What the engines were started with. No version changes it.
        self._weights = weights_of(service.config.keys, count=True)
        self._is_fair = any(each.is_fair for each in service.config.entries)

    def reload(self) -> None:
        """Read the configuration again. Called on SIGHUP and when the file has changed."""
        try:
            found = self._load()
            in_force = self._checked(found)
        except SettingError as error:
            self._log.error(REFUSED, cause=str(error))
            return
        except Exception as error:  # the edge of the watching, which goes on
            self._log.error(REFUSED, cause=first_line(error), exc_info=True)
            return
        before, self._loaded = self._loaded, found
        names = [name for name in ServerConfig.model_fields if name != "keys"]
        others = [name for name in names if getattr(before, name) != getattr(found, name)]
        service = self._service
        service.keys.replace(found.keys, service.lanes, service.config.default_lane)
        service.spend.replace(found.keys)
        service.config = in_force
        self._log.info("keys reloaded", keys=len(found.keys))
        for name in others:
            by_version = name in ("lanes", "engine")
            how = "propose a version, or restart" if by_version else "restart"
            self._log.warning(f"{name} has changed too, and is not reloaded: {how}")

    def _checked(self, found: ServerConfig) -> ServerConfig:
        """The configuration in force, with the keys that were found. Raises SettingError."""
        own = self._service.config
        if bool(found.keys) != bool(own.keys):
            what = "the last key went" if own.keys else "the first key came"
            raise SettingError(f"{what}: that needs a restart")
        for lane in {*found.lanes} ^ {*self._service.lanes}:
            raise SettingError(f"lanes.{lane}: lanes neither come nor go while requests are served")
        made = _with_keys(own, found.keys)
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

    async def watch(self, path: Path) -> None:
        """Check the file once a second, and reload when it was written. Never returns."""
        seen = _written(path)
        while True:
            await asyncio.sleep(LOOK)
            if (now := _written(path)) != seen and now:
                seen = now
                self.reload()


def _with_keys(config: ServerConfig, keys: Sequence[KeySettings]) -> ServerConfig:
    """The configuration with other keys. Raises SettingError if they do not go with the rest, such
    as a cap on money where there are no prices."""
    fields = {name: getattr(config, name) for name in ServerConfig.model_fields}
    try:
        return ServerConfig(**fields | {"keys": keys})
    except ValidationError as error:
        source = "the new keys do not go with the settings in force, which only a restart changes"
        raise SettingError(describe_problems(error, lambda where: source)[0]) from None


def _written(path: Path) -> tuple[int, int]:
    """When the file was last written (nanoseconds), and its size; zeros if it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
