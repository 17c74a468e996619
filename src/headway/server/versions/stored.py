"""The store of a server's versions, and the thread that uses it (VersionStore)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headway.store.database import Database
from headway.store.versions import Versions

Found = TypeVar("Found")


class VersionStore:
    """The store, opened in the thread that makes it. While serving, use it through `ask` alone.
    Raises SettingError if it cannot be opened."""

    def __init__(self, url: str) -> None:
        self._database = Database(url, alone=False)
        self.versions = Versions(self._database)
        self._thread = ThreadPoolExecutor(1, "versions")

    async def ask(self, function: Callable[..., Found], *given: Any) -> Found:
        """Call a function in the store's thread. Raises StoreError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *given)

    async def close(self) -> None:
        """Close the store and end its thread. Nothing may be asked afterwards."""
        await self.ask(self._database.close)
        self._thread.shutdown()
