"""How alembic runs the migrations: on the connection that it is handed."""

from alembic import context

from headway.store.ledger import ledger_tables

context.configure(
    connection=context.config.attributes["connection"], target_metadata=ledger_tables.METADATA
)
with context.begin_transaction():
    context.run_migrations()
