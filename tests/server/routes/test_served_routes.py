"""Routes over engines that compute nothing: keys, quotas, refusals, ends, settings."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from contextlib import asynccontextmanager

import httpx2
import pytest
import yaml

from headway.core.request import NEVER
from headway.errors import RefusedError, SettingError
from headway.executor.traits import EVERYTHING
from headway.models import EMBEDDED
from headway.routing.request import RouteAnswer
from headway.server.app import make_app
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import digest
from headway.server.config.validate import check_files
from headway.server.engine.handle import EngineState
from headway.server.http import sse
from headway.server.intake.routing.asked import Asked
from headway.server.intake.routing.build import of_text
from headway.server.intake.routing.failures import failure, problem_of
from headway.server.intake.routing.own_thread import OwnThreads
from headway.server.intake.service import Service
from headway.server.intake.tokenizing import AsyncTokenizer
from headway.server.observe.access import AccessLog
from headway.server.observe.logs import logger
from headway.server.protocol.problem import Problem
from tests.server.running_server import Permitted, fake, hopeless, tokenizer, until
from tests.server.running_server import serving as running

TWO = [{"name": "small"}, {"name": "large"}]
ROUTES = {
    "vote": {"ensemble": ["small", "small", "large"], "choose": "best"},
    "up": {"cascade": ["small", "large"], "accept": {"confidence": 0}},
    "safe": {"fallback": ["large", "small"]},
}
ASK = {"prompt": [5], "max_tokens": 20, "temperature": 0, "ignore_eos": True}


def key(name, **more):
    return {"name": name, "sha256": digest(name).hex(), **more}


@asynccontextmanager
async def serving(
    engines=(fake, fake), routes=ROUTES, models=TWO, around=lambda app: app, **sections
):
    """The application's client, and its service. `engines` make engines of their configurations.
    around: wraps the application."""
    config = ServerConfig(models=models, routes=routes, **sections)
    made = [make(entry) for make, entry in zip(engines, config.engines, strict=True)]
    service = Service(config, *made)
    for model in service.models:
        words = AsyncTokenizer(tokenizer(), EMBEDDED)
        model.ready(words, model.engine.eos, EVERYTHING)
    transport = httpx2.ASGITransport(around(make_app(service)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client, service
    for each in made:
        await asyncio.to_thread(each.live.close)
    service.close()


def ask(client, model, key="", headers=None, **more):
    named = {"authorization": f"Bearer {key}"} if key else {}
    body = {**ASK, "model": model, **more}
    return client.post("/v1/completions", json=body, headers=named | (headers or {}))


async def holds(condition):
    """Wait until the condition holds, and let other tasks run meanwhile."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


def test_a_key_may_use_the_routes_that_it_names():
    keys = [key("all"), key("narrow", models=["small", "up"])]

    async def main():
        async with serving(keys=keys) as (client, service):
            answer = await ask(client, "up", "narrow")
            assert (answer.status_code, answer.json()["model"]) == (200, "large")
            assert (await ask(client, "safe", "narrow")).status_code == 404
            assert (await ask(client, "large", "narrow")).status_code == 404
            await ask(client, "up", "all")
            await holds(lambda: len(service.routes.decisions.rows["up"]) == 2)
            for name, routes, decisions in (("narrow", ["up"], [1]), ("all", [*ROUTES], [0, 1, 0])):
                headers = {"authorization": f"Bearer {name}"}
                found = (await client.get("/v1/routes", headers=headers)).json()["data"]
                assert [each["id"] for each in found] == routes
                assert [each["decisions"] for each in found] == decisions
                shown = (await client.get("/v1/config/effective", headers=headers)).json()
                assert [*shown["routes"]] == routes
                models = (await client.get("/v1/models", headers=headers)).json()["data"]
                assert {each["id"] for each in models} & set(ROUTES) == set(routes)

    asyncio.run(main())


def test_every_attempt_is_charged_to_the_key_that_asked_and_to_no_other():
    keys = [key("poor", tokens_per_minute=100), key("rich")]

    async def main():
        async with serving(keys=keys) as (client, service):
            assert (await ask(client, "vote", "poor")).status_code == 200  # 3 times 21 tokens
            more = await ask(client, "safe", "poor", max_tokens=60)
            assert more.status_code == 429
            assert more.json()["error"]["code"] == "rate_limit_exceeded"
            assert more.headers["retry-after"]
            await holds(lambda: service.routes.decisions.rows["safe"])
            (row,) = service.routes.decisions.rows["safe"]
            assert [each.target for each in row.attempts] == ["large"], "small would say the same"
            rich = await ask(client, "safe", "rich", max_tokens=60)
            assert rich.json()["model"] == "large"
            assert (await ask(client, "small", "poor", max_tokens=20)).status_code == 200

    asyncio.run(main())


def test_the_stages_of_an_attempt_count_from_when_it_began():
    """Not from when the route's request was read, which is before its attempt arrived."""

    async def main():
        async with serving() as (client, _):
            await ask(client, "up", headers={"x-request-id": "mine"})
            found = (await client.get("/v1/requests/mine")).json()
            assert found["model"] == "large", "the attempt whose answer was sent"
            (choice,) = found["choices"]
            spent = {each["stage"]: each["ns"] for each in choice["stages"]}
            assert min(spent.values()) > 0 and "body" not in spent
            assert sum(spent.values()) == choice["wall_ns"]

    asyncio.run(main())


def test_the_access_logs_time_to_the_first_token_counts_from_the_requests_arrival():
    lines = []

    def around(app):
        return AccessLog(app, logger("info", lines.append))

    async def main():
        async with serving(around=around) as (client, service):
            await ask(client, "up")
            await holds(lambda: service.routes.decisions.rows["up"])
            ((row,), (line,)) = service.routes.decisions.rows["up"], lines
            rejected, _ = row.attempts
            assert line["ttft_ms"] + 0.05 >= rejected.span / 1e6 > 0, "not from the second attempt"

    asyncio.run(main())


def test_a_routes_promise_counts_from_the_requests_arrival():
    lines = []

    def around(app):
        return AccessLog(app, logger("info", lines.append))

    async def main():
        models = [TWO[0], TWO[1] | {"engine": {"cost": "cost.json"}}]
        async with serving((fake, hopeless), models=models, around=around) as (client, service):
            answer = await ask(client, "up")
            await holds(lambda: service.routes.decisions.rows["up"])
            ((row,), (line,)) = service.routes.decisions.rows["up"], lines
            rejected, _ = row.attempts
            id = answer.json()["id"]
            (choice,) = (await client.get(f"/v1/requests/{id}")).json()["choices"]
            for name, own in (("first", "first"), ("done", "end")):
                before = line[f"eta_{name}_ms"] - choice["promised_ms"][own]
                assert before + 0.1 >= rejected.span / 1e6 > 0.2, "not from the second attempt"
                shown = f"{name}={line[f'eta_{name}_ms']:.0f}"
                assert shown in answer.headers["x-headway-eta-ms"]

    asyncio.run(main())


def test_an_attempt_that_lost_says_nothing_of_its_lane_on_the_live_page():
    """It waits behind another request of its model, and has no token when it is dropped."""
    executor, routes = Permitted(), {"any": {"ensemble": ["small", "large"], "quorum": 1}}

    async def main():
        engines = [executor.engine, fake]
        async with serving(engines, routes, engine={"slots": 1}) as (client, service):
            ended = []
            service.models.first.admission.listeners.append(lambda _, rows: ended.extend(rows))
            first = asyncio.create_task(ask(client, "small"))
            await holds(lambda: executor.asked)
            assert (await ask(client, "any")).json()["model"] == "large"
            executor.permits.release(99)
            await first
            await holds(lambda: len(ended) == 2)
            page = (await client.get("/dashboard")).text
            counts = re.findall(r"(\d+) requests in 15 minutes, (\d+) outside", page)
            assert sorted(each for each in counts if each != ("0", "0")) == [("1", "0")] * 4
            assert "None of the 3 that ended last was outside its budget" in page

    asyncio.run(main())


def test_a_model_that_is_loading_is_passed_over_and_refusals_have_a_retry_after():
    routes = {
        **ROUTES,
        "only": {"fallback": ["large"]},
        "spread": {"least_loaded": ["large", "small"]},
        "cheap": {"cheapest": ["large", "small"]},
    }

    async def main():
        async with serving(routes=routes) as (client, service):
            service.models.backends["large"].state = EngineState.LOADING
            for route in ("safe", "spread", "cheap", "up"):
                answer = await ask(client, route)
                assert answer.json()["model"] == "small", route
            nobody = await ask(client, "only")
            assert nobody.status_code == 503 and nobody.json()["error"]["code"] == "loading"
            assert nobody.headers["retry-after"] and "every target refused" in nobody.text

    asyncio.run(main())


def test_a_callers_short_deadlines_open_no_circuit_for_others():
    keys, timed = [key("hasty"), key("calm")], {"x-headway-timeout-ms": "20"}
    expects = timed | {"x-headway-expected-tokens": "1"}

    async def main():
        gate = Permitted()
        async with serving([fake, gate.engine], keys=keys) as (client, _):
            for headers in [timed, expects] * 5:
                late = await ask(client, "safe", "hasty", headers)
                assert late.status_code == 408, late.text
            gate.permits.release(1_000)
            calm = await ask(client, "safe", "calm")
            assert (calm.status_code, calm.json()["model"]) == (200, "large")

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_later_request_supersedes_all_attempts(stream):
    async def main():
        gates = [Permitted(), Permitted()]
        headers = {"x-headway-supersede": "draft"}
        async with serving([gate.engine for gate in gates]) as (client, service):
            first = asyncio.create_task(ask(client, "vote", headers=headers, stream=stream))
            await holds(lambda: sum(one.admission.open for one in service.models) == 3)
            second = asyncio.create_task(ask(client, "safe", headers=headers))
            answer = await first
            assert answer.status_code == 409
            assert answer.json()["error"]["code"] == "superseded"
            for gate in gates:
                gate.permits.release(1_000)
            assert (await second).json()["model"] == "large"
            await holds(lambda: service.open == 0)

    asyncio.run(main())


def test_a_drain_lets_a_route_ask_its_next_model():
    async def main():
        gate = Permitted()
        async with serving([gate.engine, fake]) as (client, service):
            begun = asyncio.create_task(ask(client, "up"))
            await holds(lambda: gate.asked)
            draining = asyncio.create_task(service.drain_routes(30))
            await asyncio.sleep(0)
            for path in ("/v1/completions", "/ready"):
                late = await (ask(client, "large") if path != "/ready" else client.get(path))
                assert late.status_code == 503 and late.json()["error"]["code"] == "draining"
            gate.permits.release(1_000)
            assert (await begun).json()["model"] == "large"
            assert 0 < await draining <= 30

    asyncio.run(main())


def test_the_restart_of_a_replica_leaves_the_costs_of_the_others():
    models, routes = [{"name": "small", "replicas": 2}], {"only": {"rules": [{"to": "small"}]}}

    async def main():
        gates = [Permitted(), Permitted()]
        engines = [gate.engine for gate in gates]
        async with serving(engines, routes, models) as (client, service):
            asking = asyncio.create_task(ask(client, "only"))
            await holds(lambda: any(gate.asked for gate in gates))
            for gate, model in zip(gates, service.models, strict=True):
                if not gate.asked:
                    model.engine_ready()
                gate.permits.release(1_000)
            assert (await asking).status_code == 200
            await holds(lambda: service.routes.decisions.rows["only"])
            (row,) = service.routes.decisions.rows["only"]
            assert row.attempts[0].is_measured and row.nanoseconds > 0

    asyncio.run(main())


@pytest.mark.parametrize("route", ["safe", "up", "vote"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_of_a_route_sends_keepalives_before_its_first_token(route, fails, monkeypatch):
    monkeypatch.setattr(sse, "KEEPALIVE", 0.01)
    config, gates = ServerConfig(models=TWO, routes=ROUTES), []

    def gated(entry):
        gates.append(Permitted())
        return gates[-1].engine(entry)

    with (
        running(config, gated) as (url, service),
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        headers = {"x-request-id": "mine"}
        asked = {"json": {**ASK, "model": route, "stream": True}, "headers": headers}
        with client.stream("POST", "/v1/completions", **asked) as answer:
            lines = answer.iter_lines()
            assert [next(lines) for _ in range(3)] == [": waiting", "", ": waiting"]
            assert answer.status_code == 200 and answer.headers["x-headway-route"] == route
            assert "x-headway-route-target" not in answer.headers
            if fails:
                assert client.post("/v1/requests/mine/cancel").status_code == 200
            for gate in gates:
                gate.permits.release(1_000)
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data")]
        assert data[-1] == "[DONE]"
        if fails:
            assert json.loads(data[0])["error"]["code"] == "cancelled" and len(data) == 2
        else:
            assert json.loads(data[0])["model"] in ("small", "large") and "error" not in data[0]
        until(lambda: service.open == 0)


def test_a_stream_that_has_begun_tells_of_a_judge_that_raises(monkeypatch):
    monkeypatch.setattr(sse, "KEEPALIVE", 0.01)
    accept, gate = {"function": "tests.server.routes.judges_to_import:leave"}, Permitted()
    judged = {"cascade": ["small", "large"], "accept": accept}
    config = ServerConfig(models=TWO, routes={"judged": judged})
    with running(config, gate.engine) as (url, service), httpx2.Client(timeout=60) as client:
        asked = {**ASK, "model": "judged", "stream": True}
        with client.stream("POST", f"{url}/v1/completions", json=asked) as answer:
            lines = answer.iter_lines()
            assert next(lines) == ": waiting"
            gate.permits.release(1_000)
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data")]
        until(lambda: service.open == 0)
    assert json.loads(data[0])["error"]["code"] == "fault" and data[1:] == ["[DONE]"]


def test_the_attempts_of_a_route_are_numbered_in_one_workflow():
    """A workflow and an attempt named by the client are kept."""

    async def main():
        async with serving() as (client, service):
            seen = []
            for model in service.models:
                model.admission.enter = noting(seen, model.admission.enter)
            answer = await ask(client, "up")
            whole = answer.json()["id"].removesuffix(".2")
            assert [(each.id, each.labels.workflow, each.labels.attempt) for each in seen] == [
                (f"{whole}.1", whole, 1),
                (f"{whole}.2", whole, 2),
            ]
            await ask(
                client, "up", headers={"x-headway-workflow": "mine", "x-headway-attempt": "3"}
            )
            await ask(client, "up", headers={"x-headway-attempt": "4"})
            assert [(each.labels.workflow, each.labels.attempt) for each in seen[2:]] == [
                *[("mine", 3)] * 2,
                *[("", 4)] * 2,
            ]

    def noting(seen, enter):
        def noted(call):
            seen.append(call.routed)
            enter(call)

        return noted

    asyncio.run(main())


def test_what_one_model_cannot_do_another_may_be_asked_for():
    asked = Asked(None, 0)
    for code in ("not_supported", "context_length_exceeded"):
        assert isinstance(failure(Problem(400, "no", code=code), asked), RefusedError)
    for problem in (Problem(400, "no", code="invalid_value"), Problem(429, "spent", code="x")):
        failure(problem, asked)
    codes = [each.code for each in asked.refusals]
    assert codes == ["not_supported", "context_length_exceeded", "x"]


def test_who_is_refused_by_all_is_told_of_the_first_that_may_take_it():
    refusals = [Problem(429, "full", code="lane_full", retry=after) for after in (0.0, 9.0, 3.0)]
    asked = Asked(None, 0, refusals=refusals)
    problem = problem_of(RefusedError("every target refused", NEVER), asked)
    assert (problem.status, problem.code, problem.retry) == (429, "lane_full", 3.0)


@pytest.mark.parametrize("name, why", [("first_number", "StopIteration"), ("leave", "SystemExit")])
def test_a_judge_or_score_that_raises_what_no_future_carries_fails_its_request(name, why):
    judge = of_text(f"tests.server.routes.judges_to_import:{name}")

    async def main():
        async with asyncio.timeout(30):
            await judge(RouteAnswer(None, "no number"))

    with pytest.raises(RuntimeError, match=why):
        asyncio.run(main())


HANGING = """
import asyncio
from headway.routing.request import RouteAnswer
from headway.server.intake.routing.build import of_text

async def main():
    judge = of_text("tests.server.routes.judges_to_import:never")
    waiting = [asyncio.ensure_future(judge(RouteAnswer(None, "a"))) for _ in range(40)]
    done, _ = await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(len, "own"))])
    print(*[each.result() for each in done], sum(each.done() for each in waiting))

asyncio.run(main())
"""


def test_a_judge_that_never_returns_holds_up_neither_the_server_nor_its_end():
    """A process, because the threads of a pool hold up the end of theirs."""
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, timeout=60)
    assert done.stdout.split() == [b"3", b"0"] and done.returncode == 0, done.stderr


def test_calls_beyond_the_most_wait_for_a_place_of_one_that_has_ended():
    let_go, began = threading.Event(), threading.Semaphore(0)

    def wait(number):
        began.release()
        let_go.wait(30)
        return number

    async def main():
        threads = OwnThreads(most=2)
        calls = [asyncio.ensure_future(threads.call(wait, number)) for number in range(5)]
        await asyncio.to_thread(began.acquire)
        await asyncio.to_thread(began.acquire)
        calls[0].cancel()  # its thread goes on, and keeps the place
        await asyncio.to_thread(len, "")
        assert not began.acquire(blocking=False)
        let_go.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    cancelled, *others = asyncio.run(main())
    assert isinstance(cancelled, asyncio.CancelledError) and others == [1, 2, 3, 4]


def test_a_server_without_routes_has_no_accounts_metrics_or_headers_of_routes():
    async def main():
        async with serving(routes={}) as (client, service):
            assert service.routes is None
            for model in service.models:
                told = [*model.admission.watchers, *model.admission.listeners]
                assert not [each for each in told if "Accounts" in repr(each)]
            assert (await client.get("/v1/routes")).json() == {"object": "list", "data": []}
            assert "headway_route" not in (await client.get("/metrics")).text
            assert "x-headway-route" not in (await ask(client, "small")).headers

    asyncio.run(main())


def test_a_tenant_does_not_see_the_rules_of_another():
    rules = [{"to": "large", "tenants": ["gold", "silver"]}, {"to": "small"}]
    keys = [key("gold"), key("silver"), key("tin")]

    async def main():
        async with serving(routes={"chat": {"rules": rules}}, keys=keys) as (client, _):
            for name, target in (("gold", "large"), ("tin", "small")):
                assert (await ask(client, "chat", name)).json()["model"] == target
                headers = {"authorization": f"Bearer {name}"}
                one = (await client.get("/v1/config/effective", headers=headers)).json()
                two = (await client.get("/v1/routes", headers=headers)).json()["data"][0]
                assert one["routes"]["chat"] == two["settings"]
                seen = [each.get("tenants") for each in two["settings"]["rules"]]
                assert seen == ([["gold"], None] if name == "gold" else [None])

    asyncio.run(main())


WRONG = {
    "a: {cascade: [small, larg], accept: {confidence: -1}}": "routes.a.cascade: there is no model "
    "and no route 'larg'; did you mean large?",
    "a: {fallback: [b]}\n  b: {rules: [{to: a}]}": "routes.a: it leads back to itself: a -> b -> a",
    "small: {fallback: [large]}": "routes.small: 'small' is a name of the model small, too",
    "a: {fallback: [f]}": "routes.a.fallback: 'f' is a function, and a route asks models",
    "a: {fallback: [small, large], speculate: true}": "routes.a.speculate is for cascade, not for "
    "fallback",
    "a: {fallback: [small], timeuot: 2s}": "routes.a.timeuot is not known; did you mean timeout?",
    "a: {fallback: [small], timeout: fast}": "routes.a.timeout: 'fast' is not a time",
    "a: {fallback: [small, large], timeout: [1s]}": "routes.a.timeout: 1 for 2 targets",
    "a: {fallback: [small, large], hedge: true}": "routes.a.hedge: needs a timeout",
    "a: {fallback: [small, small]}": "routes.a.fallback: names a target twice",
    "a: {fallback: [small], circuit: {pause: none}}": "routes.a.circuit.pause: must end",
    "a: {cascade: [small, large]}": "routes.a: a cascade needs `accept`",
    "a: {cascade: [small, large], accept: {confidence: 1}}": "routes.a.accept.confidence should be",
    "a: {cascade: [small, large], accept: {regex: x, agree: 2}}": "routes.a.accept is one of",
    "a: {cascade: [small, large], accept: {regex: '('}}": "routes.a.accept.regex: '(' is no regul",
    "a: {cascade: [small, large], accept: {json_schema: {type: 3}}}": "routes.a.accept.json_schema",
    "a: {cascade: [small, large], accept: {function: x}}": "routes.a.accept.function is module",
    "a: {cascade: [small, large], accept: {function: 'none_such:x'}}": "there is no module none_s",
    "a: {cascade: [small, large], accept: {agree: 1}}": "routes.a.accept.agree: 1 answers cannot",
    "a: {ensemble: [small], quorum: 3}": "routes.a.quorum: 3 of 1 targets",
    "a: {ensemble: [small], score: 'm:f'}": "routes.a.score is for choose: best",
    "a: {}": "routes.a: a route is one of rules, least_loaded",
    "a: {fallback: [small], cheapest: [large]}": "not cheapest and fallback",
    "a: {least_loaded: []}": "routes.a.least_loaded: names no target",
    "a: [small]": "routes.a should be a mapping",
    "a@b: {fallback: [small]}": "'a@b' cannot name a route",
    "a: {rules: [{to: small, lanes: [voic]}]}": "routes.a.rules[0].lanes: there is no lane 'voic'",
    "a: {rules: [{to: small, tenants: [me]}]}": "routes.a.rules[0].tenants: there is no tenant",
    "a: {rules: [{to: small, tenants: []}]}": "routes.a.rules[0].tenants: an empty list names none",
    "a: {rules: [{to: small, lanes: []}]}": "routes.a.rules[0].lanes: an empty list names none",
    "a: {rules: [{to: small, mst_tokens: 3}]}": "routes.a.rules[0].mst_tokens is not known; did",
}


@pytest.mark.parametrize("written", WRONG)
def test_an_invalid_route_is_refused_with_its_place_and_the_cause(written, tmp_path):
    path = tmp_path / "headway.yaml"
    models = "[{name: small}, {name: large}, {name: f, function: 'json:loads'}]"
    path.write_text(f"models: {models}\nroutes:\n  {written}\n")
    with pytest.raises(SettingError) as raised:
        check_files(ServerConfig.load(path))
    assert WRONG[written] in str(raised.value)


def test_the_routes_in_force_can_be_loaded_again():
    routes = {
        **ROUTES,
        "each": {"fallback": ["small", "large"], "timeout": ["1s", "none"], "circuit": "none"},
        "ruled": {"rules": [{"to": "large", "lanes": ["offline"]}, {"to": "small"}]},
    }
    shown = ServerConfig(models=TWO, routes=routes).effective()["routes"]
    assert shown["safe"] == {
        "fallback": ["large", "small"],
        "timeout": "none",
        "hedge": False,
        "circuit": {"failures": 5, "pause": "10s"},
    }
    again = yaml.safe_load(yaml.safe_dump(shown))
    for route in again.values():  # drop the keys that were not set
        accept = route.get("accept")
        if accept:
            route["accept"] = {"confidence": accept["confidence"]}
        if route.get("choose") and not route["score"]:
            del route["score"]
    assert ServerConfig(models=TWO, routes=again).effective()["routes"] == shown


def test_the_wait_for_a_streams_client_is_counted_for_the_model_that_answered():
    async def main():
        async with serving() as (client, _):
            answer = await ask(client, "up", stream=True)  # the first model's answer is rejected
            assert answer.status_code == 200 and '"model":"large"' in answer.text
            said = (await client.get("/metrics")).text
        counts = r'headway_client_wait_seconds_count\{.*model_name="(\w+)".*\} ([1-9].*)'
        assert re.findall(counts, said) == [("large", "1.0")]

    asyncio.run(main())
