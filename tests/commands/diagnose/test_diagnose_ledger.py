"""A planted fault is named from a stored ledger alone, in SQLite and in PostgreSQL."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx2
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from typer.testing import CliRunner

from headway.cli.app import app
from headway.commands.diagnose.diagnosis import RULES, diagnose
from headway.commands.diagnose.sources.from_ledger import ledger_evidence
from headway.commands.diagnose.sources.ledger_read import read_ledger
from headway.commands.diagnose.timeline import WaitingLine
from headway.core.cost.step_cost import StepCost
from headway.core.policies.join import Continuous
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.executor.fake import FakeExecutor
from headway.server.config.config import ServerConfig
from headway.store.database import Database
from headway.store.ledger.flush import MINUTE, Account
from headway.store.ledger.ledger_tables import REQUESTS
from headway.store.ledger.reading import LedgerReader
from headway.store.tables import VERSIONS
from tests.commands.diagnose.small_world import COST, MS, served
from tests.commands.diagnose.test_diagnose import stored
from tests.postgresql import postgresql
from tests.server.running_server import BLOCK, by_budgets, serving

ASKED = 8  # requests of a run, all at once
LANES = {"chat": {"ttft": "50ms"}, "bulk": {}}
ENGINE = {"slots": 16, "strategy": {"join": "dynamic", "window": "600ms"}}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def where(request, tmp_path_factory):
    """A ledger, with the versions of the configuration, written by a server. All its requests
    waited for a group that was never full."""
    if request.param == "sqlite":
        store = str(tmp_path_factory.mktemp("ledger") / "ledger.db")
        written(store)
        yield store
        return
    with postgresql() as url:
        written(url)
        yield url


def written(where, versions=True):
    config = ServerConfig(
        engine=ENGINE,
        lanes=LANES,
        ledger={"url": where, "flush": "50ms"},
        versions={"store": where} if versions else {},
    )

    def engine(config):
        return by_budgets(config, FakeExecutor(512, BLOCK), StepCost())

    body = {"prompt": [5, 6, 7], "max_tokens": 3}
    with serving(config, engine) as (url, _), ThreadPoolExecutor(ASKED) as pool:
        asked = [
            pool.submit(httpx2.post, f"{url}/v1/completions", json=body, timeout=30)
            for _ in range(ASKED)
        ]
        assert all(each.result().status_code == 200 for each in asked)


def run(*arguments):
    return CliRunner().invoke(app, ["diagnose", *map(str, arguments)])


def test_a_window_that_is_too_long_is_found_in_a_stored_ledger(where):
    said = run("--ledger", where, "--json")
    found = json.loads(said.stdout)
    assert said.exit_code == 1 and found["cause"] == "window too long"
    assert (found["offered"], found["missed"]) == (ASKED, ASKED)
    (first,) = [each for each in found["findings"] if each["cause"] == found["cause"]]
    assert f"of {ASKED} missed requests" in first["evidence"][0]
    assert "window: 12ms" in first["trial"]["snippet"], "the policies are of the stored version"
    assert found["replay"].startswith("not possible from a ledger")
    unknown = {each["cause"]: each["why"] for each in found["not_known"]}
    assert "there are no step rows" in unknown["noisy neighbour"]
    assert "no cost file" in unknown["mis-set budget"]
    assert unknown["grammar compile"] == "who asked for a grammar is not recorded"
    assert not {"slow client", "KV thrash", "slot starvation by a lane"} & set(unknown)
    text = " ".join(
        run("--ledger", where).stdout.split()
    )  # lines end where the path's length lets them
    assert text.startswith("Likely cause: window too long.") and f"{ASKED} requests" in text


def test_lanes_of_a_config_file_override_those_of_the_store(where, tmp_path):
    file = tmp_path / "headway.yaml"
    file.write_text(yaml.safe_dump({"lanes": {"chat": {"ttft": "1h"}, "bulk": {}}}))
    said = run("--ledger", where, "--config", file, "--json")
    assert said.exit_code == 0 and not json.loads(said.stdout)["hurts"]


def test_requests_of_lanes_missing_from_the_config_file_are_counted_as_left_out(where, tmp_path):
    file = tmp_path / "headway.yaml"
    file.write_text(yaml.safe_dump({"lanes": {"batch": {"ttft": "1s"}}}))
    refused = run("--ledger", where, "--config", file).exception
    assert isinstance(refused, SettingError)
    assert "the requests are of chat, and the configuration has only batch" in str(refused)
    database = Database(where)
    with database.begin() as connection:
        some = select(REQUESTS.c.id).limit(2)
        ids = connection.execute(some).scalars().all()
        chosen = REQUESTS.update().where(REQUESTS.c.id.in_(ids))
        connection.execute(chosen.values(lane="batch"))
    try:
        said = json.loads(run("--ledger", where, "--config", file, "--json").stdout)
        end = "6 of lanes that the configuration does not have (chat) left out"
        assert said["source"].endswith(end)
        assert said["offered"] == 2
    finally:
        with database.begin() as connection:
            connection.execute(chosen.values(lane="chat"))
        database.close()


def test_a_store_without_versions_or_requests_says_what_it_lacks(tmp_path):
    store = str(tmp_path / "ledger.db")
    Database(store).close()
    refused = run("--ledger", store).exception
    assert isinstance(refused, SettingError) and "with --config" in str(refused)
    assert "an empty file if it had none" in str(refused)
    (empty := tmp_path / "empty.yaml").touch()
    refused = run("--ledger", store, "--config", empty).exception
    assert isinstance(refused, SettingError) and "no requests in the ledger yet" in str(refused)
    file = tmp_path / "headway.yaml"
    file.write_text(yaml.safe_dump({"lanes": LANES, "engine": ENGINE}))
    refused = run("--ledger", store, "--config", file).exception
    assert isinstance(refused, SettingError) and "no requests in the ledger yet" in str(refused)
    written(store, versions=False)
    found = json.loads(run("--ledger", store, "--config", file, "--json").stdout)
    assert found["cause"] == "window too long"
    refused = run("--ledger", store, "--config", file, "--model", "other").exception
    assert "there is no model 'other'; there are" in str(refused)


def test_a_ledger_of_several_models_needs_a_model_and_uses_its_latest_run(where):
    reader, database = LedgerReader(where), Database(where)
    with reader.begin() as connection:
        row = dict(connection.execute(REQUESTS.select().limit(1)).one()._mapping)
    reader.close()
    added = [
        row | {"id": "an-older-run", "writer": "w2", "arrived": row["arrived"] - 1},
        row | {"id": "another-model", "model": "other"},
    ]
    try:
        with database.begin() as connection:
            connection.execute(REQUESTS.insert(), added)
        refused = run("--ledger", where).exception
        assert "there are several models: name one with --model" in str(refused)
        named = json.loads(run("--ledger", where, "--model", row["model"], "--json").stdout)
        assert named["offered"] == ASKED and "1 other runs are left out" in named["source"]
    finally:
        with database.begin() as connection:
            connection.execute(REQUESTS.delete().where(REQUESTS.c.id.in_([r["id"] for r in added])))
        database.close()


def test_a_version_that_was_never_in_force_is_not_used(where):
    """One version was only proposed, and the other is of another model's file."""
    reader, database = LedgerReader(where), Database(where)
    with reader.begin() as connection:
        first = dict(connection.execute(VERSIONS.select().limit(1)).one()._mapping)
        row = dict(connection.execute(REQUESTS.select().limit(1)).one()._mapping)
    reader.close()
    content = json.loads(first["content"])
    content["config"]["engine"]["slots"], lanes = 1, content["config"]["lanes"]
    lanes["chat"]["ttft"] = lanes["bulk"]["ttft"] = "1h"
    proposed = first | {"number": 98, "is_file": False, "content": json.dumps(content)}
    other = first | {"number": 99, "content": json.dumps(content | {"model": "other"})}
    unversioned = row | {"id": "before-any-version", "version": 0}
    try:
        with database.begin() as connection:
            connection.execute(VERSIONS.insert(), [proposed, other])
            connection.execute(REQUESTS.insert(), [unversioned])
        found = read_ledger(where, 60, "", None, None)
    finally:
        with database.begin() as connection:
            connection.execute(VERSIONS.delete().where(VERSIONS.c.number.in_([98, 99])))
            connection.execute(REQUESTS.delete().where(REQUESTS.c.id == unversioned["id"]))
        database.close()
    assert found.slots == ENGINE["slots"] and len(found.requests) == ASKED + 1
    assert {row.budget.ttft for row in found.requests if row.lane == "chat"} == {50 * MS}


def test_any_finite_number_of_minutes_is_accepted(where):
    refused = run("--ledger", where, "--minutes", "inf").exception
    assert isinstance(refused, SettingError) and "--minutes is inf" in str(refused)
    assert run("--ledger", where, "--minutes", "1e14", "--json").exit_code == 1


def test_ledger_options_without_a_ledger_are_refused():
    for arguments in (
        ("--url", "http://b", "--config", "c"),
        ("--journal", "a", "--minutes", "5"),
    ):
        refused = run(*arguments).exception
        assert isinstance(refused, SettingError) and "go with --ledger" in str(refused)


# -- what stored rows suffice for


def rows_of(evidence, stage):
    """The evidence's requests as a store has them. A wait of more than 20 ms is in this stage."""
    rows = []
    for row in evidence.requests:
        started = row.finished if row.first_scheduled == NEVER else row.first_scheduled
        waited = started - row.arrived
        made = stored(row) | {"version": 0}
        made["stages"] = json.dumps({stage: waited} if waited > 20 * MS else {})
        made |= {name: None for name in ("queue_ns", "ttft_ns") if made[name] == NEVER}
        rows.append(made)
    return rows


@pytest.mark.parametrize(
    "cause, stage, cost",
    [
        ("window too long", "queue.window", StepCost()),
        ("KV thrash", "queue.blocks", StepCost()),
        ("slot starvation by a lane", "queue.slots", StepCost()),
        ("cold cache", "queue.slots", COST),
        ("mis-set budget", "queue.next_step", COST),
        ("burst", "queue.slots", COST),
        ("overload", "queue.slots", COST),
    ],
)
def test_stored_rows_name_the_same_cause_as_the_journal(cause, stage, cost):
    evidence, _ = served(cause)
    rows = rows_of(evidence, stage)
    found = diagnose(
        ledger_evidence(rows, evidence.lanes, "", policies=evidence.policies, cost=cost)
    )
    assert found.hurts and found.first.cause == cause
    named = {each.cause for each in (*found.findings, *found.not_known)}
    steps = {"batch too large", "long prompts blocking", "noisy neighbour", "drift of the machine"}
    assert steps <= named, "a rule that cannot answer says so"


def minute(number, account, lane="", **counts):
    values = {"nanoseconds": 0, "steps": 0, "rows": 0} | counts
    return {"minute": number, "account": str(account), "lane": lane, **values}


def test_full_minutes_show_an_overload_without_a_cost_model():
    evidence, _ = served("overload")
    rows, slots = rows_of(evidence, "queue.slots"), evidence.policies.slots

    def asked(batch, idle):
        minutes = [
            minute(7, Account.OPEN, nanoseconds=MINUTE // 4, steps=100, rows=100 * batch),
            minute(7, Account.REQUESTS, "chat", nanoseconds=MINUTE // 2, steps=90, rows=99),
            minute(7, Account.WASTE, nanoseconds=MINUTE // 4 - idle),
            minute(7, Account.IDLE, nanoseconds=idle),
        ]
        made = ledger_evidence(
            rows, evidence.lanes, "", minutes=minutes, policies=evidence.policies
        )
        assert sum(each.busy + each.idle for each in made.minutes) == MINUTE
        return diagnose(made).first

    assert asked(slots, 0).cause == "overload"
    assert "100 % of the device's slots" in asked(slots, 0).evidence[1]
    assert asked(slots // 2, 0) is None and asked(slots, MINUTE // 4) is None


def test_advised_slots_follow_the_minutes_in_which_blocks_were_short():
    """For 59 minutes two sequences run, and in the last two minutes sixty."""
    evidence, _ = served("KV thrash")
    rows, busy = rows_of(evidence, "queue.blocks"), 59 * MINUTE
    rows = [each | {"arrived": busy + each["arrived"]} for each in rows]
    batches = [2] * 59 + [60] * 2
    minutes = [
        minute(number, Account.OPEN, nanoseconds=MINUTE, steps=1_000, rows=1_000 * batch)
        for number, batch in enumerate(batches)
    ]

    def slots(slots):
        policies = replace(evidence.policies, join=Continuous(slots), step_tokens=512)
        made = ledger_evidence(rows, evidence.lanes, "", minutes=minutes, policies=policies)
        found = diagnose(made).first
        assert found.cause == "KV thrash"
        return found.trial.sets["slots"]

    assert slots(64) == 60
    assert slots(60) == 59, "fewer than there are"
    assert slots(400) == 100, "a quarter is the least"


def test_a_window_is_blamed_only_if_groups_had_free_places():
    evidence, _ = served("window too long")
    rows, slots = rows_of(evidence, "queue.group"), evidence.policies.slots

    def asked(batch):
        minutes = [minute(7, Account.OPEN, nanoseconds=MINUTE, steps=10, rows=10 * batch)]
        return diagnose(
            ledger_evidence(rows, evidence.lanes, "", minutes=minutes, policies=evidence.policies)
        ).first

    assert asked(1).cause == "window too long"
    assert asked(slots) is None or asked(slots).cause != "window too long"


def test_each_request_has_the_budget_of_its_version():
    evidence, _ = served("healthy")
    rows = rows_of(evidence, "queue.slots")
    strict = {name: lane.__class__(name) for name, lane in evidence.lanes.items()}
    rows[0]["version"] = 4
    found = ledger_evidence(rows, evidence.lanes, "", {4: strict, 0: evidence.lanes})
    assert not found.requests[0].budget.is_timed and found.requests[1].budget.is_timed


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=9), st.integers(0, 40))
def test_a_waiting_line_was_last_empty_when_nobody_waited(waits, time):
    spans = [(begin, begin + length) for begin, length in waits]
    found = WaitingLine(spans).before(time, -1)
    assert found <= time
    assert not any(begin < found < end for begin, end in spans)
    for moment in range(found, time):
        assert any(begin <= moment < end for begin, end in spans), "somebody waited ever since"


def test_a_healthy_ledger_does_not_hurt_and_some_rules_can_answer():
    evidence, _ = served("healthy")
    found = diagnose(ledger_evidence(rows_of(evidence, "queue.slots"), evidence.lanes, ""))
    assert {each.cause for each in found.not_known} < {rule.cause for rule in RULES}
    assert not found.hurts
