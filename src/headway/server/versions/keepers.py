"""The versions of all models of a server (VersionKeepers): a keeper for each, and one store."""

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headway.errors import SettingError, did_you_mean
from headway.server.config.config import ServerConfig
from headway.server.config.versioned import bases
from headway.server.intake.model import Model
from headway.server.intake.service import Service
from headway.server.observe.logs import Log
from headway.server.observe.metrics.metrics import merged
from headway.server.versions.keeper import VersionKeeper
from headway.server.versions.stored import VersionStore
from headway.store.versions import StoredVersion


class VersionKeepers(Collector):
    """A keeper for each model, over one store, opened before the engines are made. Raises
    SettingError if the store cannot be opened, or if a promoted version cannot be served.

    Versions are numbered across all models, so a number alone identifies a version.
    """

    def __init__(self, config: ServerConfig, log: Log) -> None:
        self.store, self._log = VersionStore(config.versions.store), log
        self._by_model = {
            name: VersionKeeper(name, base, self.store, log) for name, base in bases(config).items()
        }

    def __iter__(self) -> Iterator[VersionKeeper]:
        return iter(self._by_model.values())

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return list(self._by_model)

    def of_model(self, name: str) -> VersionKeeper:
        """The keeper of a model. name: empty for the first model. Raises SettingError."""
        if name and name not in self._by_model:
            near = did_you_mean(name, self._by_model)
            raise SettingError(f"there is no model {name[:200]!r} that has versions{near}")
        return self._by_model[name or self.names[0]]

    async def find(self, number: int) -> StoredVersion | None:
        """The version of this number; None: there is none. Raises StoreError."""
        if not 1 <= number < 2**31:  # outside the store's range
            return None
        return await self.store.ask(self.store.versions.get, number)

    async def of_version(self, number: int) -> VersionKeeper | None:
        """The keeper of a version's model; None if there is no such version. Raises SettingError if
        the model is no longer served, and StoreError. A version on trial is known without the
        store, so that its trial can be ended while the store is away."""
        for each in self:
            if each.live and each.live.number == number:
                return each
        found = await self.find(number)
        return self.of_model(found.model) if found else None

    def attach(self, service: Service) -> None:
        """Set the service whose engines obey."""
        self.service = service
        alone = len(self._by_model) == 1
        entries = {each.name: each for each in service.models.entries}
        for keeper in self:
            keeper.attach(entries[keeper.model], service.retune if alone else None)

    async def enter(self, engine: Model) -> None:
        """Store with which version an engine begins that has just been loaded. Raises
        SettingError, StoreError."""
        for each in self:
            if engine in each.in_force.engines:
                await each.enter()

    def begin(self, engine: Model) -> None:
        """Put the promoted version in force on an engine that has just been loaded, before any
        request is let in. Raises SettingError if the engine cannot change to it."""
        for each in self:
            if engine in each.in_force.engines:
                each.begin(engine)

    def greet(self) -> None:
        """Log which versions are in force from the start."""
        for each in self:
            each.greet()

    async def close(self) -> None:
        """End all trials, which takes the candidates back, and close the store."""
        for each in self:
            await each.close()
        if not await self.store.close():
            self._log.error("the store of versions does not answer: it is left behind")

    def collect(self) -> Iterator[Metric]:
        """The metrics of all keepers."""
        yield from merged([each.metrics.collect() for each in self])
