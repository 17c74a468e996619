"""The answers of GET /v1/requests/{id}: a call's time by stage, each stage's reason, its cost."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headway.server import clock
from headway.server.config.sections.prices import BILLION
from headway.server.ledger.rows.open_call import OpenCall
from headway.server.ledger.rows.request_rows import FUNCTION, Row
from headway.store.ledger.stages import stages_of

# A description of each stage. A test compares them with the scheduler's rules.
WORDS = {
    "door": "refused, or ended, before it was in a lane",
    "body": "its body was being read",
    "tokenizing": "it was checked and tokenized",
    "inbox": "on its way to the engine, which takes it in between two steps",
    "queue.next_step": "waited: a step was being computed, and none had been decided since",
    "queue.slots": "waited: all slots were taken",
    "queue.blocks": "waited: not enough KV blocks were free",
    "queue.lane": "waited: its lane had all slots or blocks that it may have",
    "queue.window": "waited: its group was not full, and its window not over",
    "queue.group": "waited: another group was running",
    "queue.step": "waited: the steps were full",
    "queue.order": "waited: behind a request for which blocks were kept",
    "queue.prefix": "waited: another computed the prefix that it shares",
    "queue.preempting": "waited: blocks were being taken from its lane",
    "queue.relegated": "waited: relegated, those in time went first",
    "prefill.own": "its prompt was computed: its own share",
    "prefill.others": "its prompt was computed: the other rows' shares of these steps",
    "decode.own": "its tokens were generated: its own share",
    "decode.others": "its tokens were generated: the other rows' shares of these steps",
    "deferred": "it ran, and steps left it out",
    "host": "it ran, and the next step was being decided",
    "preempted": "its blocks were taken, and it waited again",
    "held": "it had ended, and its group had not",
    "lost": "the engine failed",
    "delivery": "its end was on its way from the engine, or its siblings had not ended",
    "sending": "its answer was being sent",
}
# The descriptions for an item of a function.
OF_ITEMS = WORDS | {
    "body": "its body was being read and checked",
    "inbox": "on its way to its lane",
    "prefill.own": "the function was called with it: its own share",
    "prefill.others": "the function was called with it: the other items' shares",
    "decode.own": "the function was yielding its pieces: its own share",
    "decode.others": "the function was yielding its pieces: the other items' shares",
    "host": "it was in a call, and the next one was being decided",
    "lost": "the function's process failed",
    "delivery": "its result was on its way from the function, or other items had not ended",
}
RATES = ("queue", "ttft", "tpot")


def words_of(operation: str) -> Mapping[str, str]:
    """The description of each stage, by its name."""
    return OF_ITEMS if operation == FUNCTION else WORDS


def explanation(rows: Sequence[Row]) -> dict[str, Any]:
    """The explanation of an ended call, from its rows. Raises SettingError."""
    first = rows[0]
    return {
        "id": first["call"],
        "object": "request.explanation",
        "status": "ended",
        "request_id": first["request_id"],
        "lane": first["lane"],
        "model": first["model"],
        "operation": first["operation"],
        "arrived": first["arrived"] / BILLION,
        "code": first["code"] or None,
        "choices": [_choice(row) for row in rows],
    }


def _choice(row: Row) -> dict[str, Any]:
    stages = stages_of(row["id"], row["stages"])
    words = words_of(row["operation"])
    return {
        "id": row["id"],
        "finish": row["finish"],
        "good": bool(row["good"]),
        "wall_ns": row["wall_ns"],
        "stages": [
            {"stage": name, "ns": spent, "what": words.get(name, "")}
            for name, spent in stages.items()
        ],
        "ran_before": [
            {"lane": lane, "rows": ran, "tokens": tokens}
            for lane, ran, tokens in json.loads(row["ran_before"])
        ],
        "promised_ms": {
            "first": _ms(row["promised_first_ns"]),
            "end": _ms(row["promised_end_ns"]),
        },
        "times_ms": {name: _ms(row[f"{name}_ns"]) for name in RATES},
        "tokens": {
            name: row[f"{name}_tokens"]
            for name in ("fresh", "cached", "output", "recomputed", "discarded")
        },
        "preemptions": row["preemptions"],
        "relegated": bool(row["relegated"]),
        "version": row["version"],
        "device_ns": row["device_ns"],
        "cost": {
            "device": row["device_money"] / BILLION,
            "charged": row["charged"] / BILLION,
        },
    }


def open_explanation(known: OpenCall) -> dict[str, Any]:
    """The explanation of an open call, as far as it is known. Until the first token, only the
    engine knows whether the call waits or runs."""
    call = known.call
    promised = call.eta.ms
    return {
        "id": call.id,
        "object": "request.explanation",
        "status": "running" if call.tokens[1] else "unanswered",
        "request_id": call.routed.request_id,
        "lane": call.routed.lane,
        "model": call.routed.served or call.routed.model,
        "operation": call.routed.operation,
        "age_ms": _ms(clock.now() - call.arrived),
        "promised_ms": {"first": promised.get("first"), "end": promised.get("done")},
        "relegated": call.relegated,
        "choices": [],
    }


def _ms(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else round(nanoseconds / 1e6, 3)
