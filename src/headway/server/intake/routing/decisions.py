"""Decisions: the routes' decisions, counted for Prometheus and kept for GET /v1/routes."""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headway.routing.decision import Basis, DecisionRow

KEPT = 512  # rows kept per route
Listener = Callable[[DecisionRow], object]


class Decided(NamedTuple):
    """The labels a decision is counted under. Without an answer, why and target are empty."""

    route: str
    why: str
    target: str


class Tried(NamedTuple):
    """The labels an attempt is counted under."""

    route: str
    target: str
    outcome: str


class Decisions:
    """Counts and keeps decisions, on the event loop's thread. The configuration bounds its size.

    A row comes once the cost of all attempts is known. listeners: called with each row. The
    attempts of request ID have the ids ID.1, ID.2 and so on; in the ledger they are calls of
    workflow ID.
    """

    def __init__(self, routes: Iterable[str]) -> None:
        self.rows = {name: deque[DecisionRow](maxlen=KEPT) for name in routes}
        self.decided, self.tried = Counter[Decided](), Counter[Tried]()
        # Device nanoseconds, by route and by the basis of the comparison: what was spent, and what
        # the last target alone would have taken.
        self.spent, self.alone = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        self.listeners: list[Listener] = []

    def take(self, row: DecisionRow) -> None:
        """Count it, keep it, and tell the listeners."""
        why = target = ""
        if row.winner >= 0:
            winner = row.attempts[row.winner]
            why, target = winner.why.value, winner.target
        self.decided[Decided(row.route, why, target)] += 1
        for each in row.attempts:
            self.tried[Tried(row.route, each.target, each.outcome.value)] += 1
        basis = row.baseline.basis
        if not row.is_measured and basis is Basis.MEASURED:
            basis = Basis.ESTIMATED
        self.spent[row.route, basis.value] += row.nanoseconds
        self.alone[row.route, basis.value] += row.baseline.nanoseconds
        self.rows[row.route].append(row)
        for listener in self.listeners:
            listener(row)
