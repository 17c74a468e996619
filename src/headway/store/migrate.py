"""Bring the tables up to date with the alembic migrations in `migrations/`."""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from headway.errors import SettingError
from headway.store.turns import Turn, take_turn

FOLDER = Path(__file__).parent / "migrations"


def upgrade(connection: Connection) -> None:
    """Migrate the store to the latest revision. Raises SettingError if a newer headway wrote it."""
    scripts = _scripts(FOLDER)
    take_turn(connection, Turn.MIGRATING)  # before the revision is read
    found = MigrationContext.configure(connection).get_current_revision()
    if found == scripts.get_current_head():
        return
    if found and found not in {each.revision for each in scripts.walk_revisions()}:
        raise SettingError(f"the store was written by a newer headway (revision {found})")
    command.upgrade(_config(FOLDER, connection=connection), "head")


def _config(folder: Path, **attributes: object) -> Config:
    config = Config(attributes=attributes)
    config.set_main_option("script_location", str(folder))
    return config


@cache
def _scripts(folder: Path) -> ScriptDirectory:
    """The migrations in a folder. Reading them takes as long as all else that opens a store, and a
    server may open three."""
    return ScriptDirectory.from_config(_config(folder))
