"""How alembic runs the migrations: on the connection that it is handed."""

from alembic import context

from headway.store.ledger import ledger_tables  # noqa: F401  (it adds its tables)
from headway.store.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
