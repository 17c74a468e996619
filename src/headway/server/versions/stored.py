"""The store of a server's versions, and the thread that uses it (VersionStore)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from headway.rollout.proposal import undone
from headway.server.store_thread import StoreThread
from headway.store.database import Database
from headway.store.versions import (
    FREE_OR_TRIED,
    PROMOTED,
    PROPOSED,
    REPLACED,
    StoredVersion,
    VersionConflictError,
    VersionEvent,
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

    async def check_base(self, version: StoredVersion, known: StoredVersion) -> None:
        """Check that a proposed version would undo nothing of the promoted one, if that is another
        than it was proposed to change. A version that was promoted before may always be promoted
        again. known: the version that is promoted as far as this server knows. Raises
        VersionConflictError, StoreError."""
        number = version.content.get("base", 0)
        if number == 0 or any(each.state == PROMOTED for each in version.events):
            return
        promoted = await self.ask(self.versions.promoted, version.model) or known
        if number == promoted.number:
            return
        base = await self.ask(self.versions.get, number)
        assert base, "versions are never removed"
        if paths := undone(*[each.content["config"] for each in (base, promoted, version)]):
            again = "propose the change again"
            if promoted.number != known.number:
                again = f"promote version {promoted.number} on this server, too, and {again}"
            raise VersionConflictError(
                f"version {version.number} was proposed as a change of version {number}, and would "
                f"undo what version {promoted.number} says of {', '.join(paths)}: {again}"
            )

    async def conclude(
        self, number: int, event: VersionEvent, known: StoredVersion
    ) -> StoredVersion:
        """Store the end of a trial. A version that would undo what another server has promoted
        meanwhile is not promoted. known: as in check_base. Raises VersionConflictError,
        StoreError."""
        if event.state == PROMOTED:
            found = await self.ask(self.versions.get, number)
            assert found, "versions are never removed"
            if found.state == PROMOTED:  # it was stored, and the answer was lost
                return found
            try:
                await self.check_base(found, known)
            except VersionConflictError as error:
                event = replace(event, state=PROPOSED, why=f"{event.why}, but {error}")
        made = await self.ask(self.versions.happen, number, event, FREE_OR_TRIED)
        assert made, "versions are never removed"
        return made

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
