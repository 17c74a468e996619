"""Routes of models with versions: an attempt has the lanes of its model's version, and a limit that
the route itself sets takes no candidate back."""

from headway.server.config.config import ServerConfig
from tests.server.versions.test_split import fast, post, served

MODELS = [{"name": "writer"}, {"name": "reader"}]
LANES = {"chat": {"ttft": "10s", "queue": "20s", "e2e": "60s"}, "bulk": {}}


def configured(tmp_path, **route):
    store = {"store": str(tmp_path / "v.db")}
    routes = {"both": {"fallback": ["writer", "reader"], **route}}
    return ServerConfig(models=MODELS, lanes=LANES, routes=routes, versions=store)


class Entered:
    """A watcher that keeps the calls that its model has let in."""

    def __init__(self, model):
        self.calls = []
        model.admission.watchers.append(self)

    def entered(self, call):
        self.calls.append(call)

    def refused(self, call, problem): ...

    def refused_early(self, refusal): ...

    def left(self, call, open): ...


def ask(client, headers=None):
    body = {"model": "both", "prompt": "one", "max_tokens": 2}
    return client.post("/v1/completions", json=body, headers=headers)


def test_an_attempt_has_the_budget_of_its_models_version(tmp_path):
    with served(configured(tmp_path), fast) as (client, front, _):
        change = {"lanes": {"chat": {"ttft": "3s", "queue": "5s", "e2e": "30s"}}}
        post(client, "", {"model": "writer", "config": change, "reason": "strict"})
        assert post(client, "/3/promote").status_code == 200
        seen = Entered(next(iter(front.models)))
        assert ask(client).headers["x-headway-version"] == "3"
        assert ask(client, {"x-slo-ttft-ms": "1000"}).status_code == 200
        plain, own = [call.routed.deadlines for call in seen.calls]
        limits = plain.budget.ttft, plain.budget.queue, plain.budget.e2e
        assert limits == (3 * 10**9, 5 * 10**9, 30 * 10**9)
        assert plain.own == (False, False)
        assert (own.budget.ttft, own.own_start) == (10**9, True)


def test_a_routes_own_timeout_is_no_failure_of_the_model(tmp_path):
    with served(configured(tmp_path, timeout=["2s", "none"]), fast) as (client, front, _):
        seen = Entered(next(iter(front.models)))
        assert ask(client).status_code == 200
        assert seen.calls[0].routed.deadlines.own_end, "the route has set it, not the lane"
