"""Versions of two models in one server: each has its own, over real connections."""

from headway.server.config.config import ServerConfig
from tests.server.running_server import until
from tests.server.versions.test_split import SHORT, post, served, state
from tests.server.versions.test_versions import CHANGE

BUDGET = {"lanes": {"chat": {"ttft": "3s"}}}


def configured(tmp_path, **more):
    fast = {"slots": 2, "strategy": {"join": "dynamic"}}
    models = [{"name": "writer"}, {"name": "reader", "engine": fast}, {"name": "pair"}]
    models[2]["replicas"] = 2
    lanes = {"chat": {"ttft": "10s", "slots": {"most": 3}}, "bulk": {"window": "20ms"}}
    engine = {"strategy": {"join": "continuous", "chunk": 256}, "slots": 4}
    store = {"store": str(tmp_path / "v.db")}
    return ServerConfig(models=models, lanes=lanes, engine=engine, versions=store, **more)


def listed(client, model=""):
    return client.get("/v1/versions", params={"model": model} if model else {}).json()


def asked(client, model):
    body = {"model": model, "prompt": "one", "max_tokens": 2}
    return client.post("/v1/completions", json=body)


def budgets(client):
    lanes = client.get("/v1/lanes").json()["data"]
    return {each["model"]: each["budget_ms"]["ttft"] for each in lanes if each["id"] == "chat"}


def test_each_models_first_version_is_its_own_part_of_the_file(tmp_path):
    with served(configured(tmp_path)) as (client, _, _):
        for number, name in enumerate(("writer", "reader", "pair"), 1):
            found = listed(client, name)
            assert [each["number"] for each in found["data"]] == [number] and found["model"] == name
            assert found["promoted"] == found["in_force"] == number
            assert asked(client, name).headers["x-headway-version"] == str(number)
        assert listed(client)["model"] == "writer", "the first one"
        lanes = [client.get(f"/v1/versions/{n}").json()["config"]["lanes"] for n in (1, 2)]
        assert [each["bulk"]["window"] for each in lanes] == ["none", "20ms"]
        assert [each["chat"]["slots"]["most"] for each in lanes] == [3, "none"]
        text = client.get("/metrics").text
        assert text.count("# TYPE headway_version gauge") == 1
        assert 'headway_version{engine="0",model_name="pair#2"} 3.0' in text


def test_a_version_of_one_model_changes_no_other(tmp_path):
    config = configured(tmp_path)
    with served(config) as (client, _, _):
        made = post(client, "", {"model": "pair", "config": BUDGET, "reason": "strict"}).json()
        assert (made["number"], made["model"]) == (4, "pair")
        assert post(client, "/4/promote").json()["state"] == "promoted"
        strict = {"writer": 10_000.0, "reader": 10_000.0, "pair#1": 3_000.0, "pair#2": 3_000.0}
        until(lambda: budgets(client) == strict)
        assert [state(client, n) for n in (1, 2, 3)] == ["promoted", "promoted", "replaced"]
        assert asked(client, "writer").headers["x-headway-version"] == "1"
        assert asked(client, "pair").headers["x-headway-version"] == "4"
        post(client, "", {**CHANGE, "model": "writer"})
        post(client, "", {"model": "pair", "config": {"engine": {"slots": 3}}, "reason": "fewer"})
        for number in (5, 6):  # both are on trial at once
            begun = post(client, f"/{number}/start", {**SHORT, "longest": "60s"})
            assert begun.json()["state"] == "on trial"
        assert listed(client, "writer")["trial"]["version"] == 5
        assert listed(client, "pair")["trial"]["version"] == 6
        assert listed(client, "reader")["trial"] is None
        post(client, "/6/rollback")
        assert state(client, 5) == "on trial"
    with served(config) as (client, _, _):
        assert [listed(client, name)["promoted"] for name in ("writer", "reader", "pair")] == [
            1,
            2,
            4,
        ]
        assert state(client, 5) == "rolled back"


def test_an_unknown_model_is_404_and_a_proposal_is_checked_by_its_model(tmp_path):
    keys = [{"name": "ops", "sha256": "0" * 64, "admin": True, "models": ["reader"]}]
    with served(configured(tmp_path)) as (client, _, _):
        for answer in (
            client.get("/v1/versions", params={"model": "writr"}),
            post(client, "", {**CHANGE, "model": "writr"}),
        ):
            assert answer.status_code == 404
            assert "did you mean writer?" in answer.json()["error"]["message"]
        answer = post(
            client, "", {"model": "reader", "config": {"engine": {"slots": 3}}, "reason": "x"}
        )
        assert "engine.slots cannot grow to 3" in answer.json()["error"]["message"]
    with served(configured(tmp_path, keys=keys)) as (client, _, _):
        assert client.get("/v1/models").status_code == 401, "keys that name models are no hindrance"


def effective(client):
    return client.get("/v1/config/effective").json()


def test_the_only_model_begins_with_its_own_engine_settings(tmp_path):
    own = {"slots": 4, "strategy": {"join": "continuous", "chunk": 64}}
    store = {"store": str(tmp_path / "v.db")}
    config = ServerConfig(models=[{"name": "m", "engine": own}], versions=store)
    with served(config) as (client, _, _):
        first = client.get("/v1/versions/1").json()["config"]["engine"]
        assert first["slots"] == 4 and first["strategy"]["chunk"] == 64
        assert 'headway_batch_slots{engine="0",model_name="m"} 4.0' in client.get("/metrics").text
        more = post(client, "", {"config": {"engine": {"slots": 5}}, "reason": "more"})
        assert "engine.slots cannot grow to 5" in more.json()["error"]["message"]
        post(client, "", {"config": {"engine": {"slots": 3}}, "reason": "fewer"})
        post(client, "/2/promote")
        model, *_ = effective(client)["models"]
        assert model["engine"]["slots"] == 3 and model["engine"]["strategy"]["chunk"] == 64


def test_settings_outside_versions_are_still_shown_as_effective(tmp_path):
    store = {"store": str(tmp_path / "v.db")}
    models = [{"name": "m"}, {"function": "mine:f"}]
    routes = {"r": {"rules": [{"to": "m"}]}}
    config = ServerConfig(models=models, routes=routes, versions=store)
    with served(config) as (client, _, _):
        shown = effective(client)
        assert [each["name"] for each in shown["models"]] == ["m", "f"]
        assert list(shown["routes"]) == ["r"]


def test_a_version_with_other_priorities_does_not_move_the_jobs(tmp_path):
    lanes = {"first": {"priority": 0}, "last": {"priority": 1}}
    config = ServerConfig(lanes=lanes, versions={"store": str(tmp_path / "v.db")})
    with served(config) as (client, _, _):
        assert effective(client)["jobs"]["lane"] == "last"
        post(
            client, "", {"config": {"lanes": {"first": {"priority": 2}}}, "reason": "turned round"}
        )
        assert post(client, "/2/promote").json()["state"] == "promoted"
        assert effective(client)["jobs"]["lane"] == "last", "where they have run since the start"
