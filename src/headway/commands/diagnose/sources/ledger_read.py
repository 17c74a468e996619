"""Read a store for a diagnosis: the latest rows of one engine, and the lanes that it had."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection, Row, func, inspect, select

from headway.commands.diagnose.evidence import Evidence
from headway.commands.diagnose.sources.from_ledger import (
    Lanes,
    ledger_evidence,
    strange_lanes,
)
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.policies.policies import Policies
from headway.costing.calibration import read_cost_file
from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from headway.server.config.sections.lanes import LaneSettings
from headway.server.config.sections.strategy import StrategySettings
from headway.store.ledger.flush import MINUTE
from headway.store.ledger.ledger_tables import MINUTES, REQUESTS
from headway.store.ledger.reading import LedgerReader
from headway.store.tables import VERSIONS

MOST = 200_000  # requests; if there are more, the earliest are left out
NO_LANES = (
    "no lanes are known: the store has no versions of the configuration. Name the server's file "
    "with --config, or an empty file if it had none"
)


@dataclass(frozen=True, slots=True)
class Configured:
    """What a configuration says about an engine."""

    lanes: Lanes
    policies: Policies | None  # None: not known
    cost_file: str = ""  # empty: the configuration names none
    model: str = ""  # the model that a version is for
    is_file: bool = False  # the version is the server's file


def read_ledger(
    where: str, minutes: float, model: str, config: Path | None, cost: Path | None
) -> Evidence:
    """Read the rows of the last `minutes` before the model's latest request.

    model: as clients name it; empty: the only one. config: the server's file; None: the versions
    in the store. cost: a cost file; None: the one that the configuration names. Raises
    SettingError, StoreError.
    """
    reader = LedgerReader(where)
    try:
        with reader.begin() as connection:
            own, versions = Configured({}, None), dict[int, Configured]()
            if config:
                own = _of_file(config)
            else:
                versions = _of_versions(connection)
            requests, others = _requests(connection, minutes, model)
            if versions:
                own, versions = _in_force(versions, requests)
            spent = _minutes(connection, requests)
    finally:
        reader.close()
    file = cost or (Path(own.cost_file) if own.cost_file else None)
    by_version = {number: each.lanes for number, each in versions.items()}
    left_out = _without(requests, own.lanes, by_version)
    left_out += f"; {others} other runs are left out" if others else ""
    return ledger_evidence(
        requests,
        own.lanes,
        f"{reader.name}: {len(requests)} requests, {len(spent)} rows of minutes{left_out}",
        by_version,
        spent,
        own.policies,
        read_cost_file(file).cost if file else StepCost(),
    )


# -- lanes


def _of_file(path: Path) -> Configured:
    config = ServerConfig.load(path, {})
    return Configured(_named(config.core_lanes), config.policies, config.engine.cost)


def _of_versions(connection: Connection) -> dict[int, Configured]:
    """All models' versions by number."""
    rows: Sequence[Row[Any]] = ()
    if inspect(connection).has_table("versions"):
        rows = connection.execute(select(VERSIONS).order_by(VERSIONS.c.number)).all()
    if not rows:
        raise SettingError(NO_LANES)
    return {
        row.number: replace(_of_version(row.number, json.loads(row.content)), is_file=row.is_file)
        for row in rows
    }


def _in_force(
    versions: Mapping[int, Configured], requests: Sequence[Mapping[str, Any]]
) -> tuple[Configured, dict[int, Configured]]:
    """The version that served most of the requests (ties: the later one), and all versions.

    Version 0 is added: the latest version from the server's file for the requests' model, which the
    server began with; else the model's first version.
    """
    models = {row["model"] for row in requests}
    mine = {number: each for number, each in versions.items() if each.model in models} or versions
    files = [number for number, each in mine.items() if each.is_file]
    known = {**versions, 0: versions[files[-1] if files else min(mine)]}
    counts = Counter([row["version"] for row in requests if row["version"] in known])
    usual = max(counts, key=lambda number: (counts[number], number), default=0)
    return known[usual], known


def _of_version(number: int, content: Mapping[str, Any]) -> Configured:
    config = content["config"]
    try:
        lanes = TypeAdapter(dict[str, LaneSettings]).validate_python(config["lanes"])
        engine = config["engine"]
        strategy = StrategySettings.model_validate(engine["strategy"] or {})
    except (ValidationError, KeyError) as error:
        why = "was stored by another headway; name the server's file with --config"
        raise SettingError(f"version {number} of the configuration {why}") from error
    policies = strategy.policies(engine["slots"], engine["step_tokens"], lanes)
    named = _named([each.to_lane(name) for name, each in lanes.items()])
    return Configured(named, policies, model=content.get("model", ""))


def _named(lanes: Sequence[Lane]) -> Lanes:
    return {lane.name: lane for lane in lanes}


def _without(
    requests: Sequence[Mapping[str, Any]], lanes: Lanes, by_version: Mapping[int, Lanes]
) -> str:
    """Which rows cannot be judged, because their lanes are not known, in words. Raises SettingError
    if that is so of all that have a lane."""
    if not (strange := strange_lanes(requests, lanes, by_version)):
        return ""
    named = ", ".join(sorted(strange))
    if strange.total() == sum(bool(each["lane"]) for each in requests):
        raise SettingError(
            f"the requests are of {named}, and the configuration has only {', '.join(lanes)}: name "
            "the file of the server that wrote the ledger with --config"
        )
    return f"; {strange.total()} of lanes that the configuration does not have ({named}) left out"


# -- rows


def _requests(
    connection: Connection, minutes: float, model: str
) -> tuple[list[Mapping[str, Any]], int]:
    """The rows of the latest run in order of arrival, and the number of other runs in this time.

    A run is one engine's, from a start of the server to its end. Times of two runs are not
    comparable.
    """
    models = list(connection.execute(select(REQUESTS.c.model).distinct()).scalars())
    named = sorted(filter(None, models))
    if model and model not in named:
        raise SettingError(f"there is no model {model!r}; there are {', '.join(named) or 'none'}")
    if not model and len(named) > 1:
        raise SettingError(f"there are several models: name one with --model: {', '.join(named)}")
    mine = REQUESTS.c.model.in_([model or (named[0] if named else ""), ""])
    latest = connection.execute(
        select(REQUESTS.c.arrived, REQUESTS.c.writer)
        .where(REQUESTS.c.model == (model or (named[0] if named else "")))
        .order_by(REQUESTS.c.arrived.desc())
        .limit(1)
    ).first()
    if latest is None:
        raise SettingError("there are no requests in the ledger yet")
    since = REQUESTS.c.arrived >= max(0, latest.arrived - round(minutes * MINUTE))
    runs = connection.execute(
        select(func.count(REQUESTS.c.writer.distinct())).where(mine, since)
    ).scalar()
    wanted = select(REQUESTS).where(mine, since, REQUESTS.c.writer == latest.writer)
    rows = connection.execute(wanted.order_by(REQUESTS.c.arrived.desc()).limit(MOST)).all()
    return [dict(row._mapping) for row in reversed(rows)], int(runs or 1) - 1


def _minutes(
    connection: Connection, requests: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The minute rows of the requests' run, from the first request's minute on."""
    first = requests[0]["arrived"] // MINUTE
    wanted = select(MINUTES).where(
        MINUTES.c.writer == requests[0]["writer"], MINUTES.c.minute >= first
    )
    return [dict(row._mapping) for row in connection.execute(wanted)]
