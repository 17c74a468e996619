"""Files, jobs, their items, deliveries and workers."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    _files()
    _jobs()
    _workers()
    _deliveries()
    _items()
    _parts()


def downgrade() -> None:
    """Drop them, with all that is in them."""
    op.drop_table("parts")
    op.drop_table("items")
    op.drop_table("deliveries")
    op.drop_table("workers")
    op.drop_table("jobs")
    op.drop_table("files")


def _files() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=255), nullable=False),
        sa.Column("purpose", sa.String(length=32), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("is_whole", sa.Boolean(), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=True),
        sa.Column("is_errors", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    op.create_index("ix_files_tenant", "files", ["tenant", "id"], unique=False)


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("is_batch", sa.Boolean(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("ends_as", sa.String(length=16), nullable=False),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("window", sa.BigInteger(), nullable=False),
        sa.Column("input_file", sa.String(length=64), nullable=True),
        sa.Column("output_file", sa.String(length=64), nullable=True),
        sa.Column("error_file", sa.String(length=64), nullable=True),
        sa.Column("output_expires_after", sa.BigInteger(), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("callback", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("in_progress_at", sa.BigInteger(), nullable=True),
        sa.Column("finalizing_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("failed_at", sa.BigInteger(), nullable=True),
        sa.Column("expired_at", sa.BigInteger(), nullable=True),
        sa.Column("cancelling_at", sa.BigInteger(), nullable=True),
        sa.Column("cancelled_at", sa.BigInteger(), nullable=True),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("completed", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_status", "jobs", ["status", "tenant"], unique=False)
    op.create_index("ix_jobs_tenant", "jobs", ["tenant", "id"], unique=False)
    op.create_index("uq_jobs_idempotency", "jobs", ["tenant", "idempotency_key"], unique=True)


def _workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("alive_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )


def _deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("event", sa.String(length=64), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"], ["jobs.id"], name=op.f("fk_deliveries_job_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
    )
    op.create_index("ix_deliveries_due", "deliveries", ["due_at"], unique=False)


def _items() -> None:
    op.create_table(
        "items",
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("custom_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.String(length=255), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("content_type", sa.String(length=255), nullable=False),
        sa.Column("accept", sa.String(length=255), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("state", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("output", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job"], ["jobs.id"], name=op.f("fk_items_job_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job", "number", name=op.f("pk_items")),
    )
    op.create_index(
        "ix_items_running",
        "items",
        ["worker"],
        unique=False,
        sqlite_where=sa.text("worker IS NOT NULL"),
        postgresql_where=sa.text("worker IS NOT NULL"),
    )
    op.create_index(
        "ix_items_waiting",
        "items",
        ["tenant", "rank", "attempts", "job", "number"],
        unique=False,
        sqlite_where=sa.text("state = 0 AND worker IS NULL"),
        postgresql_where=sa.text("state = 0 AND worker IS NULL"),
    )


def _parts() -> None:
    op.create_table(
        "parts",
        sa.Column("file", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["file"], ["files.id"], name=op.f("fk_parts_file_files"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("file", "number", name=op.f("pk_parts")),
    )
