"""Versions on a running server: proposed, tried, taken back, promoted; over real connections."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2
import pytest
from sqlalchemy import select

from headway.core.cost.step_cost import StepCost
from headway.executor.fake import FakeExecutor
from headway.rollout.proposal import digest_of
from headway.rollout.trial import Trial
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import KeySettings, digest
from headway.server.engine.handle import EngineState
from headway.server.reload import ModelKeys, Reloading
from headway.store import versions
from headway.store.database import Database, StoreError
from headway.store.tables import VERSIONS
from tests.server.running_server import by_budgets, quiet, serving, until

ADMIN, USER = "hw-admin", "hw-user"
LANES = {"chat": {"ttft": "10s"}, "bulk": {}}
CHANGE = {"config": {"engine": {"strategy": {"chunk": 64}}}, "reason": "shorter steps"}
SLICES = {"slice": "100ms", "wash_out": "20ms", "settle": "100ms", "learning": 1, "fewest": 3}
SHORT = {**SLICES, "alpha": 1e-9}  # the noise of a busy machine never ends a trial


def configured(tmp_path, **more):
    keys = [
        {"name": "ops", "sha256": digest(ADMIN).hex(), "admin": True},
        {"name": "app", "sha256": digest(USER).hex()},
    ]
    engine = {"strategy": {"join": "continuous", "chunk": 256}, "slots": 4}
    given = {"lanes": LANES, "engine": engine, "versions": {"store": str(tmp_path / "v.db")}}
    return ServerConfig(**given, keys=keys, **more)


def fast(config):
    return by_budgets(config, FakeExecutor(512, 16), StepCost())


@contextmanager
def served(config, engine=fast):
    with serving(config, engine) as (url, front):
        headers = {"authorization": f"Bearer {ADMIN}"}
        with httpx2.Client(base_url=url, headers=headers, timeout=30) as client:
            yield client, front


def post(client, path="", body=None):
    return client.post(f"/v1/versions{path}", json=body or {})


def complete(client, lane="chat"):
    body = {"prompt": "one", "max_tokens": 2}
    return client.post("/v1/completions", json=body, headers={"x-headway-lane": lane})


def state(client, number):
    return client.get(f"/v1/versions/{number}").json()["state"]


def test_the_files_configuration_is_version_1_and_is_told_in_a_header(tmp_path):
    with served(configured(tmp_path)) as (client, _):
        found = client.get("/v1/versions").json()
        assert [(each["number"], each["state"]) for each in found["data"]] == [(1, "promoted")]
        assert found["promoted"] == 1 and found["trial"] is None
        assert complete(client).headers["x-headway-version"] == "1"


def test_only_a_key_with_admin_may_see_or_change_versions(tmp_path):
    with served(configured(tmp_path)) as (client, _):
        user = {"authorization": f"Bearer {USER}"}
        for answer in (
            client.get("/v1/versions", headers=user),
            client.post("/v1/versions", json=CHANGE, headers=user),
            client.post("/v1/versions/1/promote", json={}, headers=user),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "admin_needed")
        assert client.get("/v1/versions", headers={"authorization": ""}).status_code == 401
        assert 'id="versions"' in client.get("/dashboard").text
        assert 'id="versions"' not in client.get("/dashboard", headers=user).text


def test_without_keys_a_server_that_others_can_reach_says_why_it_shows_no_versions(tmp_path):
    open_to_all = configured(tmp_path, server={"host": "0.0.0.0"}).model_copy(update={"keys": ()})
    with serving(open_to_all, fast) as (url, _):
        answer = httpx2.get(f"{url}/v1/versions")
    assert answer.status_code == 403
    assert "only a server that listens on loopback" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "config, why",
    [
        ({"models": []}, "models cannot change while requests are served"),
        ({"engine": {"context": 9}}, "engine.context cannot change while requests are served"),
        ({"lanes": {"new": {}}}, "lanes neither come nor go"),
        ({"lanes": {"chat": None}}, "lanes.chat: a mapping of names to values is wanted"),
        ({"engine": {"slots": 64}}, "engine.slots cannot grow to 64"),
        ({"lanes": {"chat": {"tttf": "1s"}}}, "did you mean ttft"),
        ({"lanes": {"chat": {"ttft": "1s", "e2e": "500ms"}}}, "can never be used up"),
        ({"engine": {"strategy": {"order": "deadline"}}}, "engine.cost names no cost file"),
        ({"lanes": {"chat": {"late": "refuse"}}}, "lanes.chat.late: the strategy relegates no"),
        ({"lanes": {"bulk": {"slots": {"least": 1}}}}, "keeps nothing for a lane"),
        (
            {"lanes": {"chat": {"slots": {"most": 9}}}},
            "the proposal: lanes.chat.slots.most: 9 is more than all slots: there are 4",
        ),
        ({}, "it changes nothing"),
    ],
)
def test_a_proposal_that_cannot_be_in_force_is_refused_with_the_setting(tmp_path, config, why):
    with served(configured(tmp_path)) as (client, _):
        answer = post(client, "", {"config": config, "reason": "a test"})
        assert answer.status_code == 400 and why in answer.json()["error"]["message"]
        assert len(client.get("/v1/versions").json()["data"]) == 1


def test_a_promoted_version_is_in_force_at_once_and_after_a_restart(tmp_path):
    config = configured(tmp_path)
    change = {**CHANGE, "config": {"lanes": {"chat": {"ttft": "3s"}}, "engine": {"slots": 2}}}
    with served(config) as (client, front):
        made = post(client, "", change).json()
        assert (made["number"], made["state"], made["author"]) == (2, "proposed", "ops")
        assert post(client, "/2/promote", {"why": "sure"}).json()["state"] == "promoted"
        until(lambda: front.model.engine.load.version == 2)
        answer = complete(client)
        assert answer.headers["x-headway-version"] == "2"
        lanes = client.get("/v1/lanes").json()["data"]
        assert {each["id"]: each["budget_ms"]["ttft"] for each in lanes}["chat"] == 3_000
        assert client.get("/v1/config/effective").json()["lanes"]["chat"]["ttft"] == "3s"
        told = client.get("/metrics").text
        (slots,) = [line for line in told.splitlines() if line.startswith("headway_batch_slots{")]
        assert "headway_version{" in told and slots.endswith(" 2.0")
        page = client.get("/dashboard").text
        assert "of 2 slots" in page and "TTFT 3 s" in page
        assert state(client, 1) == "replaced"
    with served(config) as (client, front):
        assert client.get("/v1/versions").json()["promoted"] == 2
        assert front.config.engine.slots == 2
        assert post(client, "/2/rollback", {"why": "no"}).json()["state"] == "rolled back"
        assert client.get("/v1/versions").json()["promoted"] == 1
    changed = configured(tmp_path, server={"default_lane": "bulk"})
    with served(changed) as (client, front):
        assert client.get("/v1/versions").json()["promoted"] == 1, "versions do not hold that"
    other = config.model_copy(update={"lanes": ServerConfig(lanes={"chat": {"ttft": "9s"}}).lanes})
    with served(other) as (client, front):
        found = client.get("/v1/versions").json()
        assert found["promoted"] == 3 and found["data"][2]["reason"].endswith("was changed")


def test_a_promoted_version_stays_when_headway_has_a_new_setting(tmp_path):
    """The file's version lacks one setting, as if stored by a headway without that setting."""
    config = configured(tmp_path)
    with served(config) as (client, _):
        post(client, "", CHANGE)
        post(client, "/2/promote")
    database = Database(config.versions.store, alone=False)
    with database.begin() as connection:
        chosen = VERSIONS.c.number == 1
        content = json.loads(connection.execute(select(VERSIONS.c.content).where(chosen)).scalar())
        for lane in content["config"]["lanes"].values():
            del lane["chunk"]
        values = {"content": json.dumps(content), "digest": digest_of(content["config"])}
        connection.execute(VERSIONS.update().where(chosen).values(values))
    database.close()
    with served(config) as (client, _):
        found = client.get("/v1/versions").json()
        assert (found["promoted"], len(found["data"])) == (2, 2)


class Traffic:
    """Threads that each ask one request after another until they are told to stop."""

    def __init__(self, client, threads=3):
        self.client, self.stopped = client, threading.Event()
        self.answers = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]

    def _ask(self):
        while not self.stopped.is_set():
            self.answers.append(complete(self.client))

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *exception):
        self.stopped.set()
        for each in self._threads:
            each.join(30)


def test_a_trial_of_equals_alternates_fails_no_request_and_promotes_nothing(tmp_path):
    with served(configured(tmp_path)) as (client, _):
        post(client, "", CHANGE)
        with Traffic(client) as traffic:
            begun = post(client, "/2/start", {**SHORT, "longest": "2s", "seed": 3})
            assert begun.json()["state"] == "on trial"
            again = post(client, "/2/start", SHORT)
            assert again.status_code == 409 and "on trial" in again.json()["error"]["message"]
            until(lambda: client.get("/v1/versions").json()["trial"] is None)
        assert {each.status_code for each in traffic.answers} == {200}
        told = {each.headers["x-headway-version"] for each in traffic.answers}
        assert told == {"1", "2"}
        found = client.get("/v1/versions/2").json()
        last = found["events"][-1]
        assert (found["state"], last["details"]["verdict"]["outcome"]) == ("proposed", "ended")
        assert last["details"]["verdict"]["pairs"] >= 10, "and those that end before its last look"
        assert client.get("/v1/versions").json()["promoted"] == 1


def test_a_slower_version_is_taken_back_by_itself_and_says_why(tmp_path, work_clock):
    with served(configured(tmp_path), work_clock.slowed) as (client, front):
        expects = {"figure": "ttft_p95", "lane": "chat", "change": -0.1}
        proposal = {**CHANGE, "expects": expects, "pressure": "longer steps", "owner": "ops"}
        post(client, "", proposal)
        post(client, "/2/start", {**SLICES, "longest": "20s", "seed": 5})
        answers = work_clock.asked(front, lambda number: complete(client))
        assert {each.status_code for each in answers} == {200}
        assert {each.headers["x-headway-version"] for each in answers} == {"1", "2"}
        assert complete(client).headers["x-headway-version"] == "1"
        last = client.get("/v1/versions/2").json()["events"][-1]
        assert last["author"] == "headway" and "of lane chat is worse: e-value" in last["why"]
        assert last["details"]["measured"]["change"] > 0.2
        json.dumps(last)


def test_a_trial_is_ended_by_an_operator_and_by_the_end_of_the_server(tmp_path):
    config = configured(tmp_path)
    with served(config) as (client, front):
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "60s"})
        ended = post(client, "/2/rollback", {"why": "enough seen"}).json()
        assert (ended["state"], ended["events"][-1]["why"]) == ("rolled back", "enough seen")
        until(lambda: front.model.engine.load.version == 1)
        post(client, "/2/start", {**SHORT, "longest": "60s"})
    with served(config) as (client, _):
        found = client.get("/v1/versions/2").json()
        assert found["state"] == "rolled back" and "was ended" in found["events"][-1]["why"]


@contextmanager
def held(front, asked):
    """The store waits until this many calls are queued for it."""
    thread, begun, go = front.versions.store._thread, threading.Event(), threading.Event()
    thread.submit(lambda: (begun.set(), go.wait(60)))
    begun.wait(60)
    with ThreadPoolExecutor(asked) as callers:
        yield callers
        until(lambda: thread.calls.qsize() == asked)
        go.set()


@pytest.mark.parametrize("second", ["start", "promote"])
def test_of_two_concurrent_changes_the_second_sees_the_first(tmp_path, second):
    with served(configured(tmp_path)) as (client, front):
        post(client, "", CHANGE)
        post(client, "", {"config": {"engine": {"slots": 2}}, "reason": "fewer"})
        longest = {**SHORT, "longest": "60s"}
        with held(front, 2) as callers:  # both calls are let in before either begins
            first = callers.submit(post, client, "/2/start", longest)
            until(lambda: front.versions.store._thread.calls.qsize() == 1)
            body = longest if second == "start" else {}
            late = callers.submit(post, client, f"/3/{second}", body)
        assert first.result().status_code == 200
        assert late.result().status_code == 409
        assert "version 2 is on trial" in late.result().json()["error"]["message"]
        assert client.get("/v1/versions").json()["trial"]["version"] == 2
        assert [state(client, number) for number in (1, 2, 3)] == [
            *("promoted", "on trial", "proposed"),
        ]
        post(client, "/2/rollback")
        assert client.get("/v1/versions").json()["trial"] is None


def test_a_rollback_that_is_cut_off_leaves_the_version_promoted(tmp_path, monkeypatch):
    append, config = versions._append, configured(tmp_path)

    def cut_off(connection, number, event):
        if number == 1:
            raise StoreError("away")
        append(connection, number, event)

    with served(config) as (client, _):
        post(client, "", CHANGE)
        post(client, "/2/promote")
        with monkeypatch.context() as patched:
            patched.setattr(versions, "_append", cut_off)
            assert post(client, "/2/rollback").status_code == 503
        assert state(client, 2) == "promoted"
    with served(config) as (client, _):
        assert [state(client, number) for number in (1, 2)] == ["replaced", "promoted"]
        assert post(client, "/2/rollback", {"why": "no"}).json()["state"] == "rolled back"
        last = client.get("/v1/versions/1").json()["events"][-1]
        assert (last["state"], last["why"]) == ("promoted", "version 2 was rolled back")


def test_a_promotion_keeps_keys_that_were_reloaded(tmp_path):
    config = configured(tmp_path)
    more = [*config.keys, KeySettings(name="late", tenant="app", sha256=digest("late").hex())]
    with served(config) as (client, front):
        found = config.model_copy(update={"keys": tuple(more)})
        Reloading(lambda: found, front.config, ModelKeys(front).use, quiet()).reload()
        post(client, "", CHANGE)
        assert post(client, "/2/promote").status_code == 200
        assert [each.name for each in front.config.keys] == ["ops", "app", "late"]


def test_a_trial_that_fails_takes_its_version_back_and_says_why(tmp_path, monkeypatch):
    def broken(self, *at):
        raise RuntimeError("no judgement")

    monkeypatch.setattr(Trial, "tick", broken)
    with served(configured(tmp_path)) as (client, _):
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "60s"})
        until(lambda: client.get("/v1/versions").json()["trial"] is None)
        found = client.get("/v1/versions/2").json()
        assert found["state"] == "rolled back"
        assert found["events"][-1]["why"] == "the trial has failed: no judgement"
        assert complete(client).headers["x-headway-version"] == "1"
        assert post(client, "/2/promote").status_code == 200


def test_wrong_version_numbers_states_and_bodies_are_refused(tmp_path):
    with served(configured(tmp_path)) as (client, _):
        for number in (0, -1, 2**63, 10**20):
            assert client.get(f"/v1/versions/{number}").status_code == 404
            for decided in ("start", "promote", "rollback", "reject"):
                assert post(client, f"/{number}/{decided}").status_code == 404
        for number in ("abc", "1e3", "1.5", "9" * 5_000):
            for answer in (client.get(f"/v1/versions/{number}"), post(client, f"/{number}/start")):
                error = answer.json()["error"]
                assert (answer.status_code, error["param"]) == (400, "number")
                assert error["type"] == "invalid_request_error" and "integer" in error["message"]
        assert post(client, "/9/start").status_code == 404
        assert post(client, "/1/start").status_code == 409, "it is in force"
        said = post(client, "/1/rollback").json()["error"]["message"]
        assert "no version before" in said
        post(client, "", CHANGE)
        for path, body in (("", {**CHANGE, "reason": "a\0b"}), ("/2/reject", {"why": "\0"})):
            answer = post(client, path, body)
            assert answer.status_code == 400
            assert "has no NUL character" in answer.json()["error"]["message"]
        assert post(client, "/2/reject", {"why": "no"}).json()["state"] == "rejected"
        assert post(client, "/2/start").status_code == 409
        assert post(client, "/2/promote", {"wy": "x"}).status_code == 400


@pytest.mark.parametrize(
    "given, why",
    [
        ({"slice": "1us", "wash_out": "0s"}, "slice is 10 ms or more"),
        ({"alpha": 1e-310}, "alpha is 1e-12 or more, not 1e-310"),
    ],
)
def test_a_trial_that_cannot_be_judged_is_refused_by_name(tmp_path, given, why):
    with served(configured(tmp_path)) as (client, _):
        post(client, "", CHANGE)
        answer = post(client, "/2/start", given)
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, why)
        assert state(client, 2) == "proposed"


@pytest.mark.parametrize("engine_is", [EngineState.LOADING, EngineState.DOWN])
def test_no_trial_begins_while_an_engine_does_not_serve(tmp_path, engine_is):
    with served(configured(tmp_path)) as (client, front):
        post(client, "", CHANGE)
        front.model.engine.state = engine_is
        answer = post(client, "/2/start", SHORT)
        front.model.engine.state = EngineState.READY
        assert answer.status_code == 409
        why = f"no trial can begin: the engine headway-tiny is {engine_is}"
        assert answer.json()["error"]["message"] == why
        assert state(client, 2) == "proposed"


def test_a_rollback_of_the_promoted_version_names_the_trial_that_is_in_its_way(tmp_path):
    with served(configured(tmp_path)) as (client, _):
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "60s"})
        error = post(client, "/1/rollback").json()["error"]
        assert error["message"] == "version 2 is on trial: roll it back first"
        post(client, "/2/rollback")
