"""The store of a server's versions, and the thread that uses it (VersionStore)."""

from collections.abc import Callable
from typing import Any, TypeVar

from headway.server.store_thread import StoreThread
from headway.store.database import Database
from headway.store.versions import Versions

Found = TypeVar("Found")


class VersionStore:
    """The store, opened in the thread that makes it. While serving, use it through `ask` alone.
    Raises SettingError if it cannot be opened."""

    def __init__(self, url: str) -> None:
        database = Database(url, alone=False)
        self.versions = Versions(database)
        self._thread = StoreThread(database, "versions")

    async def ask(self, function: Callable[..., Found], *given: Any) -> Found:
        """Call a function in the store's thread. Raises StoreError."""
        return await self._thread.ask(function, *given)

    async def close(self) -> bool:
        """Close the store and end its thread. Nothing may be asked afterwards. False: the database
        does not answer, and both are left behind."""
        return await self._thread.close()
