"""NoAccounts: for a scheduler that need not account for its requests' time, as in simulations."""

from collections.abc import Iterable

from headway.core.accounts.stages import RequestStages
from headway.core.planning.plan import Plan
from headway.core.sequences.sequence import Sequence


class NoAccounts:
    """Has the methods of Accounts, and keeps nothing."""

    def advance(self, now: int) -> None: ...

    def add(self, sequence: Sequence) -> None: ...

    def moved(self, sequences: Iterable[Sequence]) -> None: ...

    def decided(self, plan: Plan, now: int) -> None: ...

    def came_back(self, now: int, spent: int) -> None: ...

    def first_token(self, sequence: Sequence) -> None: ...

    def withhold(self, sequence: Sequence) -> None: ...

    def close(self, sequence: Sequence) -> None: ...

    def take(self) -> list[RequestStages]:
        """Return an empty list."""
        return []
