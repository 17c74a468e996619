"""The ledger: its writers, requests, minutes, spend and outcomes."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables."""
    _writers()
    _requests()
    _minutes()
    _spend()
    _outcomes()


def downgrade() -> None:
    """Drop them, with all that is in them."""
    op.drop_table("ledger_outcomes")
    op.drop_table("ledger_spend")
    op.drop_table("ledger_minutes")
    op.drop_table("ledger_requests")
    op.drop_table("ledger_writers")


def _writers() -> None:
    op.create_table(
        "ledger_writers",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("began", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("alive_until", sa.BigInteger(), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("flushes", sa.BigInteger(), nullable=False),
        sa.Column("per_hour", sa.BigInteger(), nullable=False),
        sa.Column("device_ns", sa.BigInteger(), nullable=False),
        sa.Column("open_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_writers")),
    )


def _requests() -> None:
    op.create_table(
        "ledger_requests",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("call", sa.String(length=64), nullable=False),
        sa.Column("writer", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=255), nullable=False),
        sa.Column("tenant", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("lane", sa.String(length=255), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("operation", sa.String(length=32), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("prompt_version", sa.String(length=255), nullable=False),
        sa.Column("workflow", sa.String(length=255), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("arrived", sa.BigInteger(), nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("queue_ns", sa.BigInteger(), nullable=True),
        sa.Column("ttft_ns", sa.BigInteger(), nullable=True),
        sa.Column("tpot_ns", sa.BigInteger(), nullable=True),
        sa.Column("finish", sa.String(length=32), nullable=False),
        sa.Column("code", sa.String(length=255), nullable=False),
        sa.Column("good", sa.Boolean(), nullable=False),
        sa.Column("relegated", sa.Boolean(), nullable=False),
        sa.Column("preemptions", sa.BigInteger(), nullable=False),
        sa.Column("fresh_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("recomputed_tokens", sa.BigInteger(), nullable=False),
        sa.Column("discarded_tokens", sa.BigInteger(), nullable=False),
        sa.Column("device_ns", sa.BigInteger(), nullable=False),
        sa.Column("device_money", sa.BigInteger(), nullable=False),
        sa.Column("charged", sa.BigInteger(), nullable=False),
        sa.Column("promised_first_ns", sa.BigInteger(), nullable=True),
        sa.Column("promised_end_ns", sa.BigInteger(), nullable=True),
        sa.Column("stages", sa.Text(), nullable=False),
        sa.Column("ran_before", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_requests")),
    )
    op.create_index("ix_ledger_requests_call", "ledger_requests", ["tenant", "call"], unique=False)
    op.create_index("ix_ledger_requests_minute", "ledger_requests", ["minute"], unique=False)
    op.create_index(
        "ix_ledger_requests_request_id", "ledger_requests", ["tenant", "request_id"], unique=False
    )
    op.create_index(
        "ix_ledger_requests_workflow", "ledger_requests", ["tenant", "workflow"], unique=False
    )


def _minutes() -> None:
    op.create_table(
        "ledger_minutes",
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=32), nullable=False),
        sa.Column("lane", sa.String(length=255), nullable=False),
        sa.Column("nanoseconds", sa.BigInteger(), nullable=False),
        sa.Column("money", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "minute", "writer", "account", "lane", name=op.f("pk_ledger_minutes")
        ),
    )


def _spend() -> None:
    op.create_table(
        "ledger_spend",
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("lane", sa.String(length=255), nullable=False),
        sa.Column("writer", sa.String(length=64), nullable=False),
        sa.Column("money", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("day", "key", "lane", "writer", name=op.f("pk_ledger_spend")),
    )


def _outcomes() -> None:
    op.create_table(
        "ledger_outcomes",
        sa.Column("tenant", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("label", sa.String(length=255), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "tenant", "kind", "subject", "label", name=op.f("pk_ledger_outcomes")
        ),
    )
