"""The tables. The migrations create them; a test compares the two.

    files ---< parts          an input file, in parts of a fixed size
    jobs  ---< items          a job, its requests, and the result of each
    jobs  ---< deliveries     webhooks that are due
    workers                   live servers that share the store
    versions ---< version_events    a configuration, and what happened to it

All times are Unix seconds. Ids begin with a time, so they sort by creation.
"""

from enum import IntEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
ID, NAME = String(64), String(255)


class ItemState(IntEnum):
    """The state of an item. All but WAITING are final, so an item leaves WAITING once."""

    WAITING = 0  # or running, if it has a worker
    ANSWERED = 1  # with a status of 200 to 299
    FAILED = 2  # with another status
    UNANSWERED = 3  # its job was cancelled or expired first


FILES = Table(
    "files",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("tenant", NAME, nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("filename", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),  # during the upload: those that are stored
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("is_whole", Boolean, nullable=False),  # the upload is complete
    Column("job", ID),  # the job whose results are the content; null: the parts are
    Column("is_errors", Boolean, nullable=False),  # the content is the failed items' results
    Index("ix_files_tenant", "tenant", "id"),
    Index("ix_files_bytes", "tenant", "bytes"),  # each part of an upload asks for their sum
)
PARTS = Table(
    "parts",
    METADATA,
    Column("file", ID, ForeignKey("files.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
JOBS = Table(
    "jobs",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("tenant", NAME, nullable=False),
    Column("key", NAME, nullable=False),  # the key's name; empty without keys
    Column("is_batch", Boolean, nullable=False),  # else a single call
    Column("endpoint", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("ends_as", String(16), nullable=False),  # the status after `finalizing`
    Column("worker", ID),  # the worker that validates it
    Column("window", BigInteger, nullable=False),  # seconds from creation to expiry
    Column("input_file", ID),
    Column("input_bytes", BigInteger, nullable=False, server_default="0"),  # of its requests
    Column("output_file", ID),
    Column("error_file", ID),
    Column("output_expires_after", BigInteger),
    Column("details", Text, nullable=False),  # metadata, errors, a call's headers: as JSON
    Column("callback", Text, nullable=False),  # the URL that the caller named
    Column("idempotency_key", NAME),
    Column("request_hash", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("in_progress_at", BigInteger),
    Column("finalizing_at", BigInteger),
    Column("completed_at", BigInteger),
    Column("failed_at", BigInteger),
    Column("expired_at", BigInteger),
    Column("cancelling_at", BigInteger),
    Column("cancelled_at", BigInteger),
    Column("total", BigInteger, nullable=False),  # items
    Column("completed", BigInteger, nullable=False),  # items that are ANSWERED
    Column("failed", BigInteger, nullable=False),  # items that are FAILED or UNANSWERED
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Index("ix_jobs_tenant", "tenant", "id"),
    Index("ix_jobs_status", "status", "tenant"),
    Index("uq_jobs_idempotency", "tenant", "idempotency_key", unique=True),
)
ITEMS = Table(
    "items",
    METADATA,
    Column("job", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("custom_id", Text, nullable=False),
    Column("tenant", NAME, nullable=False),
    Column("rank", Integer, nullable=False),  # calls go before batches
    Column("content_type", NAME, nullable=False),  # of the body; once answered, of the output
    Column("accept", NAME, nullable=False),
    Column("body", LargeBinary),  # null once the item has ended
    Column("state", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),  # attempts begun and counted
    Column("worker", ID),  # the worker that runs it
    Column("status_code", Integer),
    Column("output", LargeBinary),  # a batch's line of the output file, or a call's answer body
    Index(
        "ix_items_waiting",
        *("tenant", "rank", "attempts", "job", "number"),
        sqlite_where=text("state = 0 AND worker IS NULL"),
        postgresql_where=text("state = 0 AND worker IS NULL"),
    ),
    Index(
        "ix_items_running",
        "worker",
        sqlite_where=text("worker IS NOT NULL"),
        postgresql_where=text("worker IS NOT NULL"),
    ),
)
DELIVERIES = Table(
    "deliveries",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("job", ID, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("event", String(64), nullable=False),
    Column("url", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", BigInteger),  # null: delivered or given up
    Column("delivered_at", BigInteger),
    Column("problem", Text, nullable=False),  # of the latest attempt
    Index("ix_deliveries_due", "due_at"),
    Index("ix_deliveries_job", "job"),  # forgetting a job deletes its own
)
WORKERS = Table(
    "workers",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("alive_until", BigInteger, nullable=False),
)
VERSIONS = Table(
    "versions",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),  # JSON; never changes
    Column("digest", String(64), nullable=False),  # of its configuration
    Column("is_file", Boolean, nullable=False),  # made from the configuration file itself
    Column("created_at", BigInteger, nullable=False),
)
VERSION_EVENTS = Table(
    "version_events",
    METADATA,
    Column("version", Integer, ForeignKey("versions.number", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True),  # from 0
    Column("state", String(16), nullable=False),  # the version's state from then on
    Column("at", BigInteger, nullable=False),
    Column("author", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("details", Text, nullable=False),  # a trial's plan or verdict, as JSON
)
