"""Evidence from the stored ledger: a row per request, and the device's time by minute.

A stored row has the durations of stages instead of times, and steps have no rows. So rules that
need steps answer NotKnown, and a what-if replay is not possible.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from headway.commands.diagnose.evidence import Evidence, Minute
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.ledger import RequestRow
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.store.ledger.flush import Account
from headway.store.ledger.stages import stages_of

AT_THE_DOOR = ("body", "tokenizing", "inbox")  # stages before the engine has a request
# Stages after the engine has ended it. Of these, `delivery` lasts until all choices of the call
# have ended, whoever reads; the client can delay SENDING alone.
SENDING = "sending"
AFTER_THE_ENGINE = ("delivery", SENDING)

Lanes = Mapping[str, Lane]


def ledger_evidence(
    requests: Iterable[Mapping[str, Any]],
    lanes: Lanes,
    source: str,
    by_version: Mapping[int, Lanes] | None = None,
    minutes: Iterable[Mapping[str, Any]] = (),
    policies: Policies | None = None,
    cost: StepCost = StepCost(),
) -> Evidence:
    """Make evidence from stored rows. A row of an unknown lane is left out.

    requests, minutes: rows of ledger_requests and ledger_minutes, by column. lanes: the lanes with
    their budgets, which rows do not hold. by_version: the lanes in each version of the
    configuration; `lanes` is used for versions that are not in it. Raises SettingError.
    """
    rows, taken, waits = list[RequestRow](), dict[str, int](), dict[str, int]()
    stages = dict[str, Mapping[str, int]]()
    for each in requests:
        lane = _lane_of(each, lanes, by_version)
        if lane is None:
            continue
        spent = stages_of(each["id"], each["stages"])
        row = _row(each, lane, spent)
        rows.append(row)
        stages[row.id] = spent
        taken[row.id] = row.arrived + sum(spent.get(name, 0) for name in AT_THE_DOOR)
        waits[row.id] = spent.get(SENDING, 0)
    return Evidence(
        source,
        tuple(rows),
        lanes,
        cost=cost,
        policies=policies,
        taken=taken,
        client_waits=waits,
        knows_grammars=False,
        stages=stages,
        minutes=_minutes(minutes),
    )


def strange_lanes(
    requests: Iterable[Mapping[str, Any]], lanes: Lanes, by_version: Mapping[int, Lanes]
) -> Counter[str]:
    """How many of these rows are of each lane that is not known. A row without a lane was refused
    before its lane was known, and does not count."""
    named = [each for each in requests if each["lane"]]
    return Counter([each["lane"] for each in named if not _lane_of(each, lanes, by_version)])


def _lane_of(
    row: Mapping[str, Any], lanes: Lanes, by_version: Mapping[int, Lanes] | None
) -> Lane | None:
    return (by_version or {}).get(row["version"], lanes).get(row["lane"])


def _minutes(rows: Iterable[Mapping[str, Any]]) -> tuple[Minute, ...]:
    """Sum the rows by minute. REQUESTS, WASTE and OPEN together are the time in steps: an open
    share moves to REQUESTS within the same minute."""
    made = dict[int, Minute]()
    for each in rows:
        number = each["minute"]
        before = made.get(number, Minute(number, 0, 0, 0, 0))
        account, spent = each["account"], each["nanoseconds"]
        in_steps = account in (Account.REQUESTS, Account.WASTE, Account.OPEN)
        is_all = account == Account.OPEN  # it counts all steps; the others one lane's, or none
        made[number] = Minute(
            number,
            before.steps + (each["steps"] if is_all else 0),
            before.rows + (each["rows"] if is_all else 0),
            before.busy + (spent if in_steps else 0),
            before.idle + (spent if account == Account.IDLE else 0),
        )
    return tuple([each for _, each in sorted(made.items())])


def _row(each: Mapping[str, Any], lane: Lane, spent: Mapping[str, int]) -> RequestRow:
    arrived, output = each["arrived"], each["output_tokens"]
    first = NEVER if each["ttft_ns"] is None else arrived + each["ttft_ns"]
    last = first if first == NEVER else first + (each["tpot_ns"] or 0) * max(0, output - 1)
    after = sum(spent.get(name, 0) for name in AFTER_THE_ENGINE)
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
