"""Make the ledger's rows of a call that is over (request_rows)."""

import json
from collections.abc import Sequence
from typing import Any

from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.server.answering.choice import Choice
from headway.server.config.sections.prices import PriceSettings
from headway.server.ledger.rows.open_call import OpenCall
from headway.server.ledger.rows.wall import Stages, wall_stages
from headway.store.ledger.flush import money

Row = dict[str, Any]  # by column of ledger_requests
FUNCTION = "function"  # the operation of items of a function


def request_rows(known: OpenCall, prices: PriceSettings, epoch: int) -> list[Row]:
    """One row per request of a call. epoch: Unix nanoseconds at zero of the engine's clock."""
    return [_row(known, choice, prices, epoch) for choice in known.call.choices.values()]


def _row(known: OpenCall, choice: Choice, prices: PriceSettings, epoch: int) -> Row:
    call, routed, id = known.call, known.call.routed, choice.answer.request.id
    row, staged = known.rows.get(id), known.stages.get(id)
    stages = wall_stages(known, row, staged)
    about = {
        "id": id,
        "call": call.id,
        "request_id": routed.request_id[:255],
        "tenant": routed.tenant.name,
        "key": routed.tenant.key,
        "lane": routed.lane,
        "model": routed.served or routed.model,
        "operation": routed.operation,
        "version": row.version if row else 0,
        "prompt_version": routed.labels.prompt_version,
        "workflow": routed.labels.workflow,
        "attempt": routed.labels.attempt,
        "arrived": epoch + call.arrived,
        "minute": 0,  # set when the row is kept
        "wall_ns": known.sent - call.arrived,
        "code": call.problem.code if call.problem else "",
        "stages": stages_json(stages),
        "ran_before": json.dumps(staged.before) if staged and staged.before else "[]",
    }
    if row is None:  # the engine lost the request; its tokens so far have been handed out
        came = {"output_tokens": len(choice.answer.tokens)}
        return about | unmeasured(Finish.ERROR.value) | came
    found = measured(row, prices)
    billed = (found["fresh_tokens"], found["cached_tokens"], row.generated)
    if row.first_scheduled == NEVER or choice.leader is not None:
        billed = (0, 0, row.generated)
    return about | found | {"charged": prices.charge(*billed)}


def measured(row: RequestRow, prices: PriceSettings) -> Row:
    """The columns that the engine measured, with no charge."""
    return {
        "queue_ns": _known(row.queue),
        "ttft_ns": _known(row.ttft),
        "tpot_ns": row.tpot if row.generated > 1 else None,
        "finish": row.finish.value,
        "good": row.good,
        "relegated": row.relegated,
        "preemptions": row.preemptions,
        "fresh_tokens": row.prompt - row.cached if row.first_scheduled != NEVER else 0,
        "cached_tokens": row.cached,
        "output_tokens": row.generated,
        "recomputed_tokens": row.recomputed,
        "discarded_tokens": row.discarded,
        "device_ns": row.nanoseconds,
        "device_money": money(prices.hour_billionths, row.nanoseconds),
        "charged": 0,
        "promised_first_ns": _after(row.promised_first, row.arrived),
        "promised_end_ns": _after(row.promised_end, row.arrived),
    }


def stages_json(stages: Stages) -> str:
    """The stages as JSON, without empty ones. The names are headway's own and need no escaping."""
    return "{" + ", ".join([f'"{name}": {spent}' for name, spent in stages if spent]) + "}"


def unmeasured(finish: str) -> Row:
    """The columns of a request that the engine did not measure."""
    counts = ("fresh", "cached", "output", "recomputed", "discarded")
    return {
        **dict.fromkeys(("queue_ns", "ttft_ns", "tpot_ns"), None),
        "finish": finish,
        **dict.fromkeys(("good", "relegated"), False),
        "preemptions": 0,
        **{f"{each}_tokens": 0 for each in counts},
        **dict.fromkeys(("device_ns", "device_money", "charged"), 0),
        **dict.fromkeys(("promised_first_ns", "promised_end_ns"), None),
    }


def charged(rows: Sequence[Row]) -> int:
    """The total charge of these rows, in billionths."""
    return sum([row["charged"] for row in rows])


def _known(nanoseconds: int) -> int | None:
    return None if nanoseconds == NEVER else nanoseconds


def _after(time: int, arrived: int) -> int | None:
    return None if time == NEVER else time - arrived
