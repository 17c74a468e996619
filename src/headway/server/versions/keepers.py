"""The versions of all models of a server (VersionKeepers): a keeper for each, and one store."""

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headway.errors import SettingError, did_you_mean
from headway.server.config.config import ServerConfig
from headway.server.config.versioned import bases
from headway.server.intake.service import Service
from headway.server.observe.logs import Log
from headway.server.observe.metrics.metrics import merged
from headway.server.versions.keeper import VersionKeeper
from headway.server.versions.stored import VersionStore
from headway.store.versions import StoredVersion


class VersionKeepers(Collector):
    """Opened before the engines are made. Raises SettingError if the store cannot be opened, or if
    a promoted version cannot be served.

    Versions are numbered over all models, so that a number is enough to mean one.
    """

    def __init__(self, config: ServerConfig, log: Log) -> None:
        self.store = VersionStore(config.versions.store)
        self._by_model = {
            name: VersionKeeper(name, base, self.store, log) for name, base in bases(config).items()
        }

    def __iter__(self) -> Iterator[VersionKeeper]:
        return iter(self._by_model.values())

    @property
    def names(self) -> list[str]:
        """Of the models."""
        return list(self._by_model)

    def of_model(self, name: str) -> VersionKeeper:
        """Empty: the first one's. Raises SettingError."""
        if name and name not in self._by_model:
            near = did_you_mean(name, self._by_model)
            raise SettingError(f"there is no model {name[:200]!r} that has versions{near}")
        return self._by_model[name or self.names[0]]

    async def find(self, number: int) -> StoredVersion | None:
        """Raises StoreError."""
        if not 1 <= number < 2**63:  # the store has no room for it
            return None
        return await self.store.ask(self.store.versions.get, number)

    async def of_version(self, number: int) -> VersionKeeper | None:
        """The keeper of the model that it is of; None if there is no such version. Raises
        SettingError if the model is not served any more."""
        found = await self.find(number)
        return self.of_model(found.model) if found else None

    def attach(self, service: Service) -> None:
        """The service whose engines obey."""
        self.service = service
        alone = len(self._by_model) == 1
        entries = {each.name: each for each in service.models.entries}
        for keeper in self:
            keeper.attach(entries[keeper.model], service.retune if alone else None)

    def begin(self) -> None:
        """The engines are ready, and nobody was let in yet: put the promoted versions in force.
        Raises SettingError if an engine cannot change to its."""
        for each in self:
            each.begin()

    def greet(self) -> None:
        """Say which versions are in force from the start."""
        for each in self:
            each.greet()

    async def close(self) -> None:
        """End all trials: the candidates are taken back."""
        for each in self:
            await each.close()
        await self.store.close()

    def collect(self) -> Iterator[Metric]:
        """The metrics of all keepers."""
        yield from merged([each.metrics.collect() for each in self])
