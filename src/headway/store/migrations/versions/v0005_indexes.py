"""Indexes by which a job finds its webhooks, and a tenant's files their size."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make them."""
    op.create_index("ix_deliveries_job", "deliveries", ["job"])
    op.create_index("ix_files_bytes", "files", ["tenant", "bytes"])


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_files_bytes", "files")
    op.drop_index("ix_deliveries_job", "deliveries")
