"""latest_call: find the stored call that an id or an X-Request-Id names."""

from sqlalchemy import ColumnElement, Connection, select

from headway.store.ledger.ledger_tables import REQUESTS
from headway.store.ledger.named_call import latest, named, request_of


def latest_call(connection: Connection, id: str, *mine: ColumnElement[bool]) -> str:
    """The id of the call that `latest` would choose; empty: there is none. mine: further conditions
    on its rows."""
    columns = REQUESTS.c
    wanted = select(columns.call, columns.tenant, columns.request_id).where(
        *mine, (columns.call == id) | (columns.request_id == id)
    )
    found = connection.execute(
        wanted.order_by((columns.call == id).desc(), columns.arrived.desc()).limit(1)
    ).first()
    if found is None:
        return ""
    call, tenant, request_id = found
    if id == call or call == request_of(call):
        return str(call)
    attempts = select(columns.call, columns.arrived, columns.stages).where(
        columns.tenant == tenant,
        columns.request_id == request_id,
        columns.call.startswith(request_of(call) + ".", autoescape=True),
    )
    rows = connection.execute(attempts)
    return latest([named(row._asdict()) for row in rows], id).call
