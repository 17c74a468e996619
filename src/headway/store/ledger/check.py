"""Check that a ledger's sums are exact (problems_of)."""

from collections import Counter
from math import inf
from typing import Any

from sqlalchemy import Row, func, select

from headway.errors import SettingError
from headway.store.ledger.flush import MINUTE, Account, money
from headway.store.ledger.ledger_tables import MINUTES, REQUESTS, WRITERS
from headway.store.ledger.reading import LedgerReader, pieces
from headway.store.ledger.stages import stages_of


def problems_of(reader: LedgerReader) -> list[str]:
    """One line per wrong sum; no lines: every nanosecond and all money is accounted for.

    - For each minute and lane, the request rows sum to the account `requests`.
    - A server's accounts sum to the time that it has served, and their money to that time's cost.
    - A server that has ended has no open time.
    - A request's stages sum to its wall time.

    Rows older than ledger.keep are deleted. A server's accounts are therefore checked only while
    its first minute is still there. If all its minutes are gone, they are checked only while the
    ledger has minutes as old, because the oldest minutes are deleted first.
    """
    with reader.begin() as connection:
        found: list[str] = []
        shares: Counter[tuple[str, int, str]] = Counter()
        for rows in pieces(connection, select(REQUESTS)):
            for row in rows:
                shares[row.writer, row.minute, row.lane] += row.device_ns
                found += _problems_of_row(row)
        mine = MINUTES.c.account == Account.REQUESTS.value
        for row in connection.execute(select(MINUTES).where(mine)):
            key = row.writer, row.minute, row.lane
            if (rows_ns := shares.pop(key, 0)) != row.nanoseconds:
                found.append(f"{key}: rows of {rows_ns} ns, the minute has {row.nanoseconds}")
        found += [
            f"{key}: rows of {ns} ns, the minute has none" for key, ns in shares.items() if ns
        ]
        sums = {
            row.writer: (int(row.ns), int(row.money), row.first)
            for row in connection.execute(
                select(
                    MINUTES.c.writer,
                    func.sum(MINUTES.c.nanoseconds).label("ns"),
                    func.sum(MINUTES.c.money).label("money"),
                    func.min(MINUTES.c.minute).label("first"),
                ).group_by(MINUTES.c.writer)
            )
        }
        oldest = min([first for _, _, first in sums.values()], default=inf)
        for writer in connection.execute(select(WRITERS)):
            found += _problems_of_writer(writer, *sums.get(writer.id, (0, 0, oldest)))
        return found


def _problems_of_row(row: Row[Any]) -> list[str]:
    """One line if a request's stages do not sum to its wall time, or cannot be read."""
    try:
        total = sum(stages_of(row.id, row.stages).values())
    except SettingError as error:
        return [str(error)]
    return [] if total == row.wall_ns else [f"{row.id}: stages of {total} ns in {row.wall_ns} ns"]


def _problems_of_writer(row: Row[Any], nanoseconds: int, cost: int, first: float) -> list[str]:
    """One line per wrong sum of a server. first: the earliest minute left of its accounts;
    if none is left, of all accounts."""
    found = []
    if row.until - row.began != row.device_ns:
        found.append(f"{row.id}: {row.device_ns} ns in {row.until - row.began} ns")
    if row.closed and row.open_ns:
        found.append(f"{row.id}: it has ended, and {row.open_ns} ns are open")
    if first > row.began // MINUTE:
        return found  # earlier minutes were deleted
    if nanoseconds != row.device_ns:
        found.append(f"{row.id}: accounts of {nanoseconds} ns in {row.device_ns} ns")
    if cost != (due := money(row.per_hour, row.device_ns)):
        found.append(f"{row.id}: money of {cost} billionths, where its time costs {due}")
    return found
