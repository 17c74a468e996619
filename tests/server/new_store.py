"""New stores in files: copies of one, since the migrations would take 70 ms for each."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from headway.store.database import Database


@cache
def _new():
    with TemporaryDirectory(prefix="headway-store-") as folder:
        path = Path(folder) / "store.db"
        Database(str(path)).close()
        return path.read_bytes()


def lay_out(config):
    """Write the files of SQLite that a configuration names and that do not exist yet."""
    for where in (config.jobs.store, config.ledger.url, config.versions.store):
        path = Path(where or ".")
        if "://" not in str(where) and path.parent.is_dir() and not path.exists():
            path.touch(0o600)
            path.write_bytes(_new())
