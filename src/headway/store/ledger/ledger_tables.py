"""The ledger's tables. The migrations create them; a test compares the two.

    ledger_writers  ---< ledger_requests     a server's run, and the requests that ended in it
    ledger_writers  ---< ledger_minutes      a server's run, and where its device time went
    ledger_spend                             what each key was charged, by day and lane
    ledger_outcomes                          labels that callers gave to requests and workflows

Times are Unix nanoseconds, durations nanoseconds, money billionths of a unit of currency. All are
integers, so sums are exact. The tables hold no prompts and no answers.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text

from headway.store.tables import ID, METADATA, NAME

SHORT = String(32)

WRITERS = Table(
    "ledger_writers",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("host", NAME, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("began", BigInteger, nullable=False),  # when an engine was ready
    Column("until", BigInteger, nullable=False),  # device time is accounted for up to here
    Column("alive_until", BigInteger, nullable=False),  # after this the writer counts as dead
    Column("closed", Boolean, nullable=False),  # the writer ended, or its last interval was closed
    Column("flushes", BigInteger, nullable=False),  # number of its stored flushes
    Column("per_hour", BigInteger, nullable=False),  # cost of an hour of the device
    Column("device_ns", BigInteger, nullable=False),  # the sum of its minutes
    Column("open_ns", BigInteger, nullable=False),  # the part of requests that have not ended
)
REQUESTS = Table(
    "ledger_requests",
    METADATA,
    Column("id", ID, primary_key=True),  # of a choice; a call has one row per choice
    Column("call", ID, nullable=False),  # the id of the answer
    Column("writer", ID, nullable=False),
    Column("request_id", NAME, nullable=False),  # X-Request-Id
    Column("tenant", NAME, nullable=False),
    Column("key", NAME, nullable=False),
    Column("lane", NAME, nullable=False),
    Column("model", Text, nullable=False),
    Column("operation", SHORT, nullable=False),
    Column("version", BigInteger, nullable=False),  # of the configuration; 0: none
    Column("prompt_version", NAME, nullable=False),
    Column("workflow", NAME, nullable=False),
    Column("attempt", BigInteger, nullable=False),  # 0: not given
    Column("arrived", BigInteger, nullable=False),
    Column("minute", BigInteger, nullable=False),  # the ledger_minutes row with its device time
    Column("wall_ns", BigInteger, nullable=False),  # from receipt to the last byte
    Column("queue_ns", BigInteger),  # from receipt to its first step
    Column("ttft_ns", BigInteger),
    Column("tpot_ns", BigInteger),
    Column("finish", SHORT, nullable=False),
    Column("code", NAME, nullable=False),  # the error code of the answer; empty: no error
    Column("good", Boolean, nullable=False),
    Column("relegated", Boolean, nullable=False),
    Column("preemptions", BigInteger, nullable=False),
    Column("fresh_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("recomputed_tokens", BigInteger, nullable=False),
    Column("discarded_tokens", BigInteger, nullable=False),
    Column("device_ns", BigInteger, nullable=False),
    Column("device_money", BigInteger, nullable=False),  # cost of device_ns
    Column("charged", BigInteger, nullable=False),  # what its key was charged
    Column("promised_first_ns", BigInteger),  # after its arrival
    Column("promised_end_ns", BigInteger),
    Column("stages", Text, nullable=False),  # JSON: nanoseconds by stage; they sum to wall_ns
    Column("ran_before", Text, nullable=False),  # JSON: [lane, rows, tokens] run while it waited
    Index("ix_ledger_requests_call", "tenant", "call"),
    Index("ix_ledger_requests_request_id", "tenant", "request_id"),
    Index("ix_ledger_requests_workflow", "tenant", "workflow"),
    Index("ix_ledger_requests_minute", "minute"),
)
MINUTES = Table(
    "ledger_minutes",
    METADATA,
    Column("minute", BigInteger, primary_key=True),  # Unix seconds / 60
    Column("writer", ID, primary_key=True),
    Column("account", SHORT, primary_key=True),  # requests, waste, idle, open or unrecorded
    Column("lane", NAME, primary_key=True),  # for `requests`; else empty
    Column("nanoseconds", BigInteger, nullable=False),
    Column("money", BigInteger, nullable=False),
    Column("steps", BigInteger, nullable=False),  # `requests`: with a row of the lane; `open`: all
    Column("rows", BigInteger, nullable=False),  # the lane's rows in these steps; `open`: all
    Column("requests", BigInteger, nullable=False),  # ended ones; `unrecorded`: rows not stored
)
SPEND = Table(
    "ledger_spend",
    METADATA,
    Column("day", Integer, primary_key=True),  # Unix days, UTC
    Column("key", NAME, primary_key=True),
    Column("lane", NAME, primary_key=True),
    Column("writer", ID, primary_key=True),
    Column("money", BigInteger, nullable=False),
)
OUTCOMES = Table(
    "ledger_outcomes",
    METADATA,
    Column("tenant", NAME, primary_key=True),
    Column("kind", String(16), primary_key=True),  # request or workflow
    Column("subject", NAME, primary_key=True),  # the call's id, or the workflow's
    Column("label", NAME, primary_key=True),
    Column("value", BigInteger),  # in millionths; null: not given
    Column("at", BigInteger, nullable=False),
)
