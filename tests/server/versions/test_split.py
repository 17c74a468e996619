"""Replicas of a model, and trials in which two share the traffic; over real connections."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import httpx2
import pytest

from headway.core.cost.step_cost import StepCost
from headway.errors import SettingError
from headway.executor.fake import FakeExecutor
from headway.server.answering.arrival import Arrival
from headway.server.config.config import ServerConfig
from headway.server.config.tenant import Tenant
from headway.server.engine.handle import EngineState
from headway.server.intake.replicas import Replicas
from headway.server.versions.split import REQUEST, TENANT, WORKFLOW, Split, share_of
from tests.server.running_server import Permitted, by_budgets, serving, until

LANES = {"chat": {"ttft": "10s"}, "bulk": {}}
CHANGE = {"config": {"engine": {"strategy": {"chunk": 64}}}, "reason": "shorter steps"}
SLICES = {"slice": "100ms", "wash_out": "20ms", "settle": "100ms", "learning": 1, "fewest": 3}
SHORT = {**SLICES, "alpha": 1e-9}  # the noise of a busy machine never ends a trial


def configured(tmp_path, replicas=2, **more):
    engine = {"strategy": {"join": "continuous", "chunk": 256}, "slots": 4}
    versions = {"store": str(tmp_path / "v.db")}
    models = [{"name": "writer", "replicas": replicas}]
    return ServerConfig(models=models, lanes=LANES, engine=engine, versions=versions, **more)


def fast(config):
    return by_budgets(config, FakeExecutor(512, 16), StepCost())


class Seen:
    """A watcher that remembers which workflows came to its engine."""

    def __init__(self, model):
        self.workflows = []
        model.admission.watchers.append(self)

    def entered(self, call):
        self.workflows.append(call.routed.labels.workflow)

    def refused(self, call, problem): ...

    def refused_early(self, refusal): ...

    def left(self, call, open): ...


@contextmanager
def served(config, engine=fast):
    with (
        serving(config, engine) as (url, front),
        httpx2.Client(base_url=url, timeout=30) as client,
    ):
        yield client, front, [Seen(each) for each in front.models]


def post(client, path="", body=None):
    return client.post(f"/v1/versions{path}", json=body or {})


def complete(client, workflow=""):
    headers = {"x-headway-workflow": workflow} if workflow else {}
    body = {"model": "writer", "prompt": "one", "max_tokens": 2}
    return client.post("/v1/completions", json=body, headers=headers)


def state(client, number):
    return client.get(f"/v1/versions/{number}").json()["state"]


def test_callers_see_one_model_and_equal_replicas_take_turns(tmp_path):
    with served(configured(tmp_path, 3)) as (client, _, seen):
        listed = [each["id"] for each in client.get("/v1/models").json()["data"]]
        assert listed == ["writer", "writer@chat", "writer@bulk"]
        assert client.get("/v1/models/writer").json()["root"] == "writer"
        answers = [complete(client) for _ in range(9)]
        assert {each.json()["model"] for each in answers} == {"writer"}
        assert [len(each.workflows) for each in seen] == [3, 3, 3]
        states = client.get("/health").json()["models"]
        assert states == {f"writer#{n}": "ready" for n in (1, 2, 3)}
        body = {"model": "writer#2", "prompt": "one"}
        assert client.post("/v1/completions", json=body).status_code == 404
        assert 'model_name="writer#3"' in client.get("/metrics").text


def test_the_replica_with_fewer_open_requests_gets_the_next_one(tmp_path):
    executors = []

    def held(config):
        executors.append(Permitted())
        return executors[-1].engine(config)

    with served(configured(tmp_path), held) as (client, _, seen):
        executors[0].permits.release(10_000)
        first = threading.Thread(target=complete, args=(client, "held"))
        first.start()
        until(lambda: seen[1].workflows == ["held"])
        for n in range(4):
            assert complete(client, f"next-{n}").status_code == 200
        assert seen[1].workflows == ["held"], "its one request has not ended"
        executors[1].permits.release(10_000)
        first.join(30)


def engine_of(state=EngineState.READY, open=0, tokenized=0):
    admission = SimpleNamespace(open=open, preparing=Counter(chat=tokenized))
    return SimpleNamespace(engine=SimpleNamespace(state=state), admission=admission)


def test_requests_that_are_being_tokenized_count_as_the_replicas_own():
    replicas = Replicas(["writer"], [engine_of(tokenized=2), idle := engine_of(open=1)])
    assert [replicas.pick(None) for _ in range(3)] == [idle] * 3


def test_a_trial_sends_nobody_to_an_engine_that_is_down():
    replicas = Replicas(["writer"], [down := engine_of(EngineState.DOWN), up := engine_of(open=9)])
    replicas.assignment = lambda arrival: [down]
    assert [replicas.pick(None) for _ in range(3)] == [up] * 3


def test_a_slow_version_is_rolled_back_and_no_request_is_lost(tmp_path, work_clock):
    with served(configured(tmp_path), work_clock.slowed) as (client, front, seen):
        expects = {"figure": "ttft_p95", "lane": "chat", "change": -0.1}
        rails = [{"figure": "ttft_p95", "lane": "chat"}]
        post(client, "", {**CHANGE, "expects": expects, "guardrails": rails})
        plan = {**SLICES, "slice": "300ms", "longest": "60s", "seed": 5}
        begun = post(client, "/2/start", plan).json()
        assert begun["events"][-1]["details"]["share"] == 0.5
        assert begun["events"][-1]["details"]["plan"]["engines"] == 2
        answers = work_clock.asked(front, lambda number: complete(client, f"w{number}"))
        last = client.get("/v1/versions/2").json()["events"][-1]
        assert last["state"] == "rolled back" and last["author"] == "headway"
        assert "of lane chat is worse: e-value" in last["why"]
        assert last["details"]["measured"]["change"] > 0.2
        assert {each.status_code for each in answers} == {200}
        versions = [each.headers["x-headway-version"] for each in answers]
        for each in seen:
            had = {versions[int(workflow[1:])] for workflow in each.workflows}
            assert had == {"1", "2"}, "each engine had each version"
        until(lambda: {each.engine.load.version for each in front.models} == {1})
        assert front.models.entries[0].assignment is None


def test_a_workflow_keeps_its_engine_while_versions_are_compared(tmp_path):
    with served(configured(tmp_path)) as (client, _, seen):
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "60s"})
        with ThreadPoolExecutor(4) as callers:
            answers = list(callers.map(lambda n: complete(client, f"w{n % 10}"), range(40)))
        assert {each.status_code for each in answers} == {200}
        first, second = (set(each.workflows) for each in seen)
        assert not first & second and first | second == {f"w{n}" for n in range(10)}
        post(client, "/2/rollback")


def test_a_trial_ends_when_one_of_its_engines_does_not_serve(tmp_path):
    with served(configured(tmp_path)) as (client, front, _):
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "60s"})
        engine = list(front.models)[1].engine
        engine.state = EngineState.LOADING
        until(lambda: state(client, 2) == "rolled back")
        why = client.get("/v1/versions/2").json()["events"][-1]["why"]
        assert why == "the engine writer#2 was loading during the trial"
        assert complete(client).status_code == 200
        engine.state = EngineState.READY


def test_a_trial_ended_by_a_drain_names_the_server_as_the_cause(tmp_path):
    with served(configured(tmp_path)) as (client, front, _):
        post(client, "", CHANGE)
        post(client, "/2/start", {**SHORT, "longest": "60s"})
        next(iter(front.models)).engine.state = EngineState.DRAINING
        until(lambda: state(client, 2) == "rolled back")
        last = client.get("/v1/versions/2").json()["events"][-1]
        assert last["why"] == "the server was ended during its trial"
        assert last["details"]["verdict"]["outcome"] == "stopped"


@pytest.mark.parametrize(
    "replicas, given, why",
    [
        (1, {"share": 0.5}, "set `replicas`"),
        (1, {"sticky": "tenant"}, "set `replicas`"),
        (2, {"share": 0.1}, "both versions need the same load"),
        (3, {"share": 0.6}, "at most 0.5"),
        (3, {"sticky": "colour"}, "sticky"),
    ],
)
def test_a_share_or_sticky_value_that_cannot_be_used_is_refused(tmp_path, replicas, given, why):
    with served(configured(tmp_path, replicas)) as (client, _, _):
        post(client, "", CHANGE)
        answer = post(client, "/2/start", given)
        assert answer.status_code == 400 and why in answer.json()["error"]["message"]
        assert state(client, 2) == "proposed"


def arrival(tenant, workflow=""):
    headers = {"x-headway-workflow": workflow} if workflow else {}
    return Arrival(Tenant(tenant, "k", frozenset({"chat"}), "chat", ""), headers, 0)


def test_both_versions_get_the_same_share_and_other_replicas_the_rest():
    split = Split(["a", "b", "c", "d"], 0.2, WORKFLOW, 7)
    for who in (lambda n: arrival("t"), lambda n: arrival("t", f"w{n}")):
        found = Counter("".join(split(who(n))) for n in range(2_000))
        assert set(found) == {"a", "b", "cd"}
        assert 300 < found["a"] < 500 and 300 < found["b"] < 500


def test_sticky_sets_who_keeps_an_engine_and_each_trial_draws_anew():
    def engines(sticky, seed=1, tenants=("t",)):
        split = Split(["a", "b"], 0.5, sticky, seed)
        return [split(arrival(each, f"w{n}"))[0] for n in range(64) for each in tenants]

    assert engines(WORKFLOW) == engines(WORKFLOW) != engines(WORKFLOW, seed=2)
    assert engines(WORKFLOW) != engines(WORKFLOW, tenants=("u",)), "of another tenant"
    assert len(set(engines(TENANT))) == 1
    assert engines(REQUEST) != engines(REQUEST)


def test_the_default_share_is_that_of_one_replica():
    assert [share_of(2, None), share_of(4, None), share_of(4, 0.1)] == [0.5, 0.25, 0.1]
    with pytest.raises(SettingError, match="above 0"):
        share_of(4, 0)
