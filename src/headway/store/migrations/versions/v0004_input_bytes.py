"""How many bytes of requests a job holds."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

OPEN = "('validating', 'in_progress', 'cancelling', 'finalizing')"


def upgrade() -> None:
    """Add the column. A job that is open counts the requests that it still has."""
    column = sa.Column("input_bytes", sa.BigInteger(), server_default="0", nullable=False)
    op.add_column("jobs", column)
    held = "SELECT coalesce(sum(length(body)), 0) FROM items WHERE items.job = jobs.id"
    op.execute(f"UPDATE jobs SET input_bytes = ({held}) WHERE status IN {OPEN}")


def downgrade() -> None:
    """Drop it."""
    op.drop_column("jobs", "input_bytes")
