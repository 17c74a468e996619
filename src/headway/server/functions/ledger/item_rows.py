"""A row of the ledger for each item of a call of a function (item_rows)."""

import json
from dataclasses import dataclass, field

from headway.core.request import NEVER, Finish
from headway.server.config.sections.prices import PriceSettings
from headway.server.config.tenant import Tenant
from headway.server.functions.ledger.item_accounts import ItemRow
from headway.server.ledger.rows.request_rows import FUNCTION, Row, measured, stages_json, unmeasured
from headway.server.ledger.rows.wall import Stages, stages_from
from headway.server.protocol.labels import Labels

NO_LABELS = Labels()


@dataclass(slots=True)
class FunctionCall:
    """One HTTP request, until all is known of it. Times: nanoseconds on the server's clock."""

    id: str
    function: str
    request_id: str
    tenant: Tenant
    arrived: int  # when its header had been read
    labels: Labels = NO_LABELS
    lane: str = ""  # as far as it is known
    code: str = ""  # of the error that it was answered with
    left: int = NEVER  # when its answer was made, or given up
    sent: int = NEVER  # when its last byte was sent, or the client had gone
    items: list[ItemRow] = field(default_factory=list)
    asked: bool = False  # the function has its items, or will have them
    told: bool = False  # nothing more will be known of its items
    is_lost: bool = False  # the function's process was gone before it had told of them
    is_empty: bool = False  # it was answered, and had no items

    @property
    def is_whole(self) -> bool:
        """Whether nothing more will be known of the request."""
        return self.told and NEVER not in (self.left, self.sent)


def item_rows(call: FunctionCall, prices: PriceSettings, epoch: int) -> list[Row]:
    """One row for each item of a call; one row for a call without items. An item's cost stands in
    the place of a request's prompt tokens. It is not charged, because prices are per token."""
    items = call.items or [ItemRow(None, None, call.code)]
    rows = [_row(call, item, prices, epoch) for item in items]
    for at, row in enumerate(rows if len(rows) > 1 else ()):
        row["id"] = f"{call.id}-{at}"
    return rows


def _row(call: FunctionCall, item: ItemRow, prices: PriceSettings, epoch: int) -> Row:
    row, staged = item.row, item.stages
    about = {
        "id": call.id,
        "call": call.id,
        "request_id": call.request_id[:255],
        "tenant": call.tenant.name,
        "key": call.tenant.key,
        "lane": row.lane if row else call.lane,
        "model": call.function,
        "operation": FUNCTION,
        "version": 0,
        "prompt_version": call.labels.prompt_version,
        "workflow": call.labels.workflow,
        "attempt": call.labels.attempt,
        "arrived": epoch + call.arrived,
        "minute": 0,  # until it is kept
        "wall_ns": call.sent - call.arrived,
        "code": item.code or call.code,
        "stages": stages_json(_stages(call, item)),
        "ran_before": json.dumps(staged.before) if staged and staged.before else "[]",
    }
    if row is None:
        finish = Finish.REFUSED if _was_refused(call, item) else Finish.ERROR
        return about | unmeasured(finish.value)
    # A result does not count if its caller had left, or had been told that it was late.
    return about | measured(row, prices) | {"good": row.good and not about["code"]}


def _was_refused(call: FunctionCall, item: ItemRow) -> bool:
    """Whether an item without a row never entered its lane."""
    return bool(item.code or call.code) and not call.is_lost


def _stages(call: FunctionCall, item: ItemRow) -> Stages:
    """The stages of an item. If it was refused, all time up to its answer is "door"; if its process
    was gone, "lost"."""
    if item.row is None and _was_refused(call, item):
        return [("door", call.left - call.arrived), ("sending", call.sent - call.left)]
    entered = min(item.row.arrived, call.left) if item.row else call.arrived
    known = stages_from(entered, call.left, call.sent, item.row, item.stages)
    return [("body", entered - call.arrived), *known]
