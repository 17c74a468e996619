"""ItemAccounts: what became of the items of one HTTP request, told once they all have ended."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from headway.core.accounts.stages import RequestStages
from headway.core.ledger import RequestRow


class ItemRow(NamedTuple):
    """What became of one item."""

    row: RequestRow | None  # None: it was not taken in, or the function's process is gone
    stages: RequestStages | None
    code: str  # of its error; empty: it has none, or no caller waited for it


Told = Callable[[Sequence[ItemRow]], object]


class Staged:
    """Keeps the stages of items until their rows are asked for, in the engine's thread."""

    def __init__(self) -> None:
        self._stages: dict[str, RequestStages] = {}

    def take(self, stages: Sequence[RequestStages]) -> None:
        """Keep the stages of items that have an account."""
        self._stages |= {each.id: each for each in stages}

    def of(self, row: RequestRow) -> RequestStages | None:
        """The stages of an item, given out once."""
        return self._stages.pop(row.id, None)


class ItemAccounts:
    """The accounts of a request's items. Make, fill and close it on the event loop, where `told` is
    called. Items may settle in any thread."""

    def __init__(self, staged: Staged, told: Told) -> None:
        """told: gets all items, in their order, once."""
        self._staged, self._told, self._loop = staged, told, asyncio.get_running_loop()
        self._items: list[ItemAccount] = []
        self._lock, self._open = Lock(), 1  # items that have not ended, and the request itself

    def add(self) -> "ItemAccount":
        """Add the account of one more item."""
        account = ItemAccount(self)
        self._items.append(account)
        return account

    def close(self) -> None:
        """Note that the request is over; tell, if all items have ended."""
        if self.end_one():
            self.tell()

    def begin_one(self) -> None:
        """Note that an item is in its lane."""
        with self._lock:
            self._open += 1

    def end_one(self) -> bool:
        """Note that an item or the request has ended. Returns whether all have."""
        with self._lock:
            self._open -= 1
            return not self._open

    def tell(self) -> None:
        """Tell what became of all items, once all have ended."""
        self._told([ItemRow(each.row, each.stages, each.code) for each in self._items])

    def tell_soon(self) -> None:
        """As `tell`, from the engine's thread."""
        with suppress(RuntimeError):  # the loop is closed, so there is no one left to tell
            self._loop.call_soon_threadsafe(self.tell)

    def stages_of(self, row: RequestRow) -> RequestStages | None:
        """Where the item's time went."""
        return self._staged.of(row)


class PlainAccount:
    """The account of one item (live.account.Account), where no ledger is kept."""

    __slots__ = ("code", "row")

    def __init__(self) -> None:
        self.code = ""  # of its error; empty: it has none
        self.row: RequestRow | None = None

    def begun(self) -> None:
        pass

    def settled(self, row: RequestRow | None) -> None:
        self.row = row


class ItemAccount:
    """The account of one item (live.account.Account)."""

    __slots__ = ("_all", "code", "row", "stages")

    def __init__(self, all: ItemAccounts) -> None:
        self._all, self.code = all, ""
        self.row: RequestRow | None = None
        self.stages: RequestStages | None = None

    def begun(self) -> None:
        self._all.begin_one()

    def settled(self, row: RequestRow | None) -> None:
        if row:
            self.row, self.stages = row, self._all.stages_of(row)
        if self._all.end_one():
            self._all.tell_soon()
