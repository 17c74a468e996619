"""Reads what the ledger of a test has kept."""

from sqlalchemy import select

from headway.store.ledger.check import problems_of
from headway.store.ledger.ledger_tables import REQUESTS
from headway.store.ledger.reading import LedgerReader


def stored(tmp_path, table=REQUESTS):
    """The rows of a table."""
    reader = LedgerReader(str(tmp_path / "ledger.db"))
    with reader.begin() as connection:
        rows = [dict(row._mapping) for row in connection.execute(select(table))]
    reader.close()
    return rows


def exact(tmp_path):
    """Whether all sums of the ledger are exact."""
    reader = LedgerReader(str(tmp_path / "ledger.db"))
    found = problems_of(reader)
    reader.close()
    return found == []
