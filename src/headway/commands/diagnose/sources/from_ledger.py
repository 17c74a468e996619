"""Evidence from the stored ledger: a row for each request, and one for each minute and lane.

A stored row has stages of time instead of moments, and no step has a row. So rules that need steps
answer that they cannot know, and so does what replay would say.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headway.commands.diagnose.evidence import Evidence
from headway.core.lane import Lane
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish

AT_THE_DOOR = ("body", "tokenizing", "inbox")  # stages before the engine has a request
AT_THE_CLIENT = ("delivery", "sending")  # stages after the engine has ended it


def ledger_evidence(
    requests: Iterable[Mapping[str, Any]], lanes: Mapping[str, Lane], source: str
) -> Evidence:
    """requests: rows of the table ledger_requests, by column. lanes: with their budgets, which the
    store does not hold. A row of a lane that is not among them is left out."""
    rows, taken, waits = list[RequestRow](), dict[str, int](), dict[str, int]()
    for each in requests:
        if each["lane"] not in lanes:
            continue
        stages = json.loads(each["stages"])
        spent = dict(stages) if isinstance(stages, Mapping) else _summed(stages)
        row = _row(each, lanes[each["lane"]], spent)
        rows.append(row)
        taken[row.id] = row.arrived + sum(spent.get(name, 0) for name in AT_THE_DOOR)
        waits[row.id] = sum(spent.get(name, 0) for name in AT_THE_CLIENT)
    return Evidence(source, tuple(rows), lanes, taken=taken, client_waits=waits)


def _summed(stages: Iterable[tuple[str, int]]) -> dict[str, int]:
    spent = dict[str, int]()
    for name, nanoseconds in stages:
        spent[name] = spent.get(name, 0) + nanoseconds
    return spent


def _row(each: Mapping[str, Any], lane: Lane, spent: Mapping[str, int]) -> RequestRow:
    arrived, output = each["arrived"], each["output_tokens"]
    first = NEVER if each["ttft_ns"] is None else arrived + each["ttft_ns"]
    last = first if first == NEVER else first + (each["tpot_ns"] or 0) * max(0, output - 1)
    after = sum(spent.get(name, 0) for name in AT_THE_CLIENT)
    return RequestRow(
        id=each["id"],
        lane=lane.name,
        budget=lane.budget,
        finish=Finish(each["finish"]),
        arrived=arrived,
        first_scheduled=NEVER if each["queue_ns"] is None else arrived + each["queue_ns"],
        first_token=first,
        last_token=last,
        finished=arrived + each["wall_ns"] - after,
        prompt=each["fresh_tokens"] + each["cached_tokens"],
        generated=output,
        cached=each["cached_tokens"],
        discarded=each["discarded_tokens"],
        preemptions=each["preemptions"],
        nanoseconds=each["device_ns"],
        recomputed=each["recomputed_tokens"],
        relegated=each["relegated"],
        tenant=each["tenant"],
    )
