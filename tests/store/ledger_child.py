"""A writer that is killed by its test. It prints the number of each flush that is stored."""

import sys

from headway.store.database import Database
from headway.store.ledger.ledger_store import LedgerStore
from tests.store.test_ledger_store import Run

if __name__ == "__main__":
    where, name = sys.argv[1:]
    run = Run(LedgerStore(Database(where, alone=False)), name)
    for number in range(1, 100_000):
        run.write(run.flush(number % 7, 1_000, [300, 400, 250]))
        print(number, flush=True)
