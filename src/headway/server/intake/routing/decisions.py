"""Decisions: what the routes have decided, counted for Prometheus and kept for GET /v1/routes."""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headway.routing.decision import Basis, DecisionRow

KEPT = 512  # rows of each route
Listener = Callable[[DecisionRow], object]


class Decided(NamedTuple):
    """What a decision is counted by. Without an answer, why and target are empty."""

    route: str
    why: str
    target: str


class Tried(NamedTuple):
    """What an attempt is counted by."""

    route: str
    target: str
    outcome: str


class Decisions:
    """On the event loop's thread. Everything in it is bounded by the configuration.

    A row is told once the cost of all attempts is known. listeners: told each row. The attempts of
    the request ID have ID.1, ID.2 and so on; in the ledger they are calls of the workflow ID.
    """

    def __init__(self, routes: Iterable[str]) -> None:
        self.rows = {name: deque[DecisionRow](maxlen=KEPT) for name in routes}
        self.decided, self.tried = Counter[Decided](), Counter[Tried]()
        # Nanoseconds of the device by route and by where its comparison is from: what was spent,
        # and what the last target alone would have taken.
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
