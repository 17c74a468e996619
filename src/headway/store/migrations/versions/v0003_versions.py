"""Versions of the configuration, and what became of them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "versions",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("is_file", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_versions")),
    )
    op.create_table(
        "version_events",
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["version"],
            ["versions.number"],
            name=op.f("fk_version_events_version_versions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("version", "place", name=op.f("pk_version_events")),
    )


def downgrade() -> None:
    """Drop them, with all that is in them."""
    op.drop_table("version_events")
    op.drop_table("versions")
