"""A run without its warm-up: the rows that all figures are computed from."""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import replace

from headway.core.ledger import RequestRow
from headway.runs.outcome import Outcome


def requests_after_warm_up(outcome: Outcome, warm_up: int) -> Outcome:
    """The outcome without the requests of the warm-up. A starting backlog stays in.

    Requests whose callers were made to leave are left out, too: no caller waited for the answers.
    """
    waiting = _backlogs(outcome)
    return _of(outcome, (row for row in _stayed(outcome) if _counts(row, warm_up, waiting)))


def without_warm_up(outcome: Outcome, warm_up: int) -> Outcome:
    """The outcome without the requests, steps and time of the warm-up.

    All figures are computed from it.
    """
    waiting = _backlogs(outcome)
    return replace(
        requests_after_warm_up(outcome, warm_up),
        steps=tuple(row for row in outcome.steps if row.began >= warm_up),
        nanoseconds=max(0, outcome.nanoseconds - warm_up),
        begin=warm_up,
        before=tuple(row for row in _stayed(outcome) if not _counts(row, warm_up, waiting)),
    )


def _stayed(outcome: Outcome) -> list[RequestRow]:
    left = {row.id for row in outcome.client if row.left}
    return [row for row in outcome.requests if row.id not in left]


def _backlogs(outcome: Outcome) -> set[str]:
    """The lanes that are a starting backlog: all of their requests came at time 0.

    The first request of a trace comes at time 0 too. That is no backlog, because the other requests
    of the trace follow later.
    """
    lanes = {row.lane for row in outcome.requests}
    return lanes - {row.lane for row in outcome.requests if row.arrived}


def _counts(row: RequestRow, warm_up: int, backlogs: Set[str]) -> bool:
    return row.lane in backlogs or row.arrived >= warm_up


def _of(outcome: Outcome, rows: Iterable[RequestRow]) -> Outcome:
    """The outcome with only these rows, and with the offered counts reduced to match."""
    kept = tuple(rows)
    left = Counter(row.lane for row in outcome.requests) - Counter(row.lane for row in kept)
    offered = {lane: count - left[lane] for lane, count in outcome.offered.items()}
    ids = {row.id for row in kept} if outcome.client else ()
    client = tuple(row for row in outcome.client if row.id in ids)
    return replace(outcome, offered=offered, requests=kept, client=client)
