"""The store of a server's versions, and the thread that uses it (VersionStore)."""

from collections.abc import Callable
from typing import Any, TypeVar

from headway.rollout.proposal import undone
from headway.server.store_thread import StoreThread
from headway.store.database import Database
from headway.store.versions import (
    PROMOTED,
    REPLACED,
    StoredVersion,
    VersionConflictError,
    Versions,
)

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

    async def check_base(self, version: StoredVersion, promoted: StoredVersion) -> None:
        """Check that a proposed version would undo nothing of the promoted one, if that is another
        than it was proposed to change. A version that was promoted before may always be promoted
        again. Raises VersionConflictError, StoreError."""
        number = version.content.get("base", 0)
        if number in (0, promoted.number) or any(e.state == PROMOTED for e in version.events):
            return
        base = await self.ask(self.versions.get, number)
        assert base, "versions are never removed"
        if paths := undone(*[each.content["config"] for each in (base, promoted, version)]):
            raise VersionConflictError(
                f"version {version.number} was proposed as a change of version {number}, and would "
                f"undo what version {promoted.number} says of {', '.join(paths)}: propose the "
                "change again"
            )

    async def before(self, version: StoredVersion) -> StoredVersion:
        """The version that was promoted before this one, which is promoted now. Raises
        VersionConflictError, StoreError."""
        found = await self.ask(self.versions.all, version.model)
        replaced = [each for each in found if each.state == REPLACED]
        if not replaced:
            raise VersionConflictError(f"there is no version before {version.number}")
        return max(replaced, key=lambda each: each.order)

    async def close(self) -> bool:
        """Close the store and end its thread. Nothing may be asked afterwards. False: the database
        does not answer, and both are left behind."""
        return await self._thread.close()
