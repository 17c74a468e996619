"""Outcomes: labels that a caller gives to a request or a workflow afterwards."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from headway.store.database import Database
from headway.store.ledger.ledger_tables import OUTCOMES, REQUESTS
from headway.store.ledger.stored_call import latest_call

REQUEST, WORKFLOW = "request", "workflow"
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """A label. A subject may have several; giving one again replaces its value and time."""

    tenant: str
    kind: str  # REQUEST or WORKFLOW
    subject: str  # a call's id, or a workflow's
    label: str
    value: int | None  # in millionths
    at: int  # Unix nanoseconds


class Outcomes:
    """The outcomes in a store. Used by one thread at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._insert = sqlite.insert if database.is_file else postgresql.insert

    def add(self, outcome: Outcome) -> None:
        """Store an outcome. A label that is given again gets the new value and time."""
        values = {name: getattr(outcome, name) for name in Outcome.__slots__}
        made = self._insert(OUTCOMES).values(values)
        keys = list(OUTCOMES.primary_key.columns)
        again = {"value": outcome.value, "at": outcome.at}
        with self._database.begin() as connection:
            connection.execute(made.on_conflict_do_update(index_elements=keys, set_=again))

    def call_of(self, tenant: str, id: str) -> str:
        """The id of the tenant's call with this id or X-Request-Id, chosen as by `latest`; empty:
        there is none."""
        with self._database.begin() as connection:
            return latest_call(connection, id, REQUESTS.c.tenant == tenant)

    def rows_of(self, tenant: str, call: str) -> list[dict[str, object]]:
        """The rows of one of the tenant's calls, as dicts by column."""
        wanted = select(REQUESTS).where(REQUESTS.c.tenant == tenant, REQUESTS.c.call == call)
        with self._database.begin() as connection:
            rows = connection.execute(wanted.order_by(REQUESTS.c.id))
            return [dict(row._mapping) for row in rows]

    def has_workflow(self, tenant: str, workflow: str) -> bool:
        """Whether a request of the tenant belongs to this workflow."""
        mine = REQUESTS.c.tenant == tenant, REQUESTS.c.workflow == workflow
        with self._database.begin() as connection:
            return (
                connection.execute(select(REQUESTS.c.id).where(*mine).limit(1)).first() is not None
            )
