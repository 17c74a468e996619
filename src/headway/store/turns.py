"""take_turn: run one transaction at a time among servers that share PostgreSQL."""

from enum import IntEnum

from sqlalchemy import Connection, func, select


class Turn(IntEnum):
    """Work that one transaction does at a time; the numbers are keys of PostgreSQL's locks."""

    MIGRATING = 0x6865_6164_0001
    CHANGING_VERSIONS = 0x6865_6164_0002


def take_turn(connection: Connection, turn: Turn) -> None:
    """Wait until no other transaction holds this turn, and hold it until this one ends. SQLite
    needs nothing: its transactions run one at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(turn.value)))
