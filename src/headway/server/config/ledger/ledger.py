"""`ledger`: where a row for each request is kept, how long, and what happens if that fails."""

from typing import Annotated, Literal

from pydantic import Field, PlainSerializer

from headway.errors import SettingError
from headway.server.config.durations import SECOND, Duration, Limit
from headway.server.config.sections.jobs import DAY
from headway.server.config.sections.section import Count, Section
from headway.store.shown_url import without_password


class LedgerSettings(Section):
    """The `ledger` section. Without a URL, requests are explained for as long as they are
    remembered, and nothing is kept."""

    url: Annotated[
        str,
        PlainSerializer(without_password),
        Field(
            description="Where the ledger is kept: a file of SQLite, which is made if there is "
            "none, or postgresql://USER@HOST/NAME. It may be jobs.store. Default: it is not kept."
        ),
    ] = ""
    keep: Annotated[
        Limit, Field(description="How long rows are kept; then they are deleted, piece by piece.")
    ] = 90 * DAY
    flush: Annotated[
        Duration,
        Field(
            description="How often rows are written. A crash loses what came since, and no more."
        ),
    ] = SECOND // 2
    rows: Annotated[
        Count,
        Field(
            description="Rows that wait in memory while the database is away. What comes beyond "
            "them is counted, and its device time is unrecorded."
        ),
    ] = 20_000
    when_away: Annotated[
        Literal["allow", "refuse"],
        Field(
            description="While the database is away, requests of keys with a cap on money: allow "
            "goes by the last known totals, refuse answers with 503."
        ),
    ] = "allow"

    def check(self) -> None:
        if not SECOND // 20 <= self.flush <= 60 * SECOND:
            raise SettingError("flush is from 50ms to 60s")
