"""Routes of a real server, with the embedded model under two names and the openai client."""

import json
import os
import signal
import threading
from types import SimpleNamespace

import httpx2
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server import served_process
from tests.server.http.raw_client import Hostile
from tests.server.http.raw_client import body as head_of
from tests.server.running_server import until
from tests.server.served_process import FAKE_ENGINES

FUNCTIONS = "tests.server.routes.judges_to_import"
CHAT = [{"role": "user", "content": "The json module"}]
ROUTES = {
    "content": {"cascade": ["small", "large"], "accept": {"confidence": -100}},
    "strict": {"cascade": ["small", "large"], "accept": {"confidence": 0}},
    "short": {"cascade": ["small", "large"], "accept": {"function": f"{FUNCTIONS}:is_short"}},
    "stubborn": {
        "cascade": ["small", "gone"],
        "accept": {"regex": "never this"},
        "best_effort": True,
    },
    "gone": {"rules": [{"to": "large", "metadata": {"never": "sent"}}]},
    "sized": {"rules": [{"to": "small", "most_tokens": 20}, {"to": "large"}]},
    "by_lane": {"rules": [{"to": "large", "lanes": ["offline"]}, {"to": "small"}]},
    "safe": {"fallback": ["large", "small"]},
    "impatient": {"fallback": ["large", "small"], "timeout": ["100ms", "none"]},
    "vote": {"ensemble": ["small", "small", "large"], "choose": "majority"},
    "longest": {
        "ensemble": ["small", "large"],
        "choose": "best",
        "score": f"{FUNCTIONS}:length",
    },
    "cheap": {"cheapest": ["small", "large"]},
    "spread": {"least_loaded": ["small", "large"]},
    "nested": {"fallback": ["strict", "small"]},
}
CONFIG = {
    "models": [
        {"name": "small", "quantize": "int8"},
        {"name": "large", "dtype": "float32"},
    ],
    "engine": {"slots": 4, "context": 256, "threads": 1, "restart": 5},
    "routes": ROUTES,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with served_process.served(CONFIG, tmp_path_factory.mktemp("routes")) as found:
        made = openai.OpenAI(base_url=f"{found.url}/v1", api_key="none", max_retries=0)
        with httpx2.Client(base_url=found.url, timeout=60) as http, made as client:
            yield SimpleNamespace(
                http=http, client=client, pids=dict(found.said["engine_pids"]), lines=found.lines
            )


def chat(served, route, **more):
    raw = served.client.chat.completions.with_raw_response.create(
        model=route, messages=CHAT, **{"max_tokens": 8, "temperature": 0} | more
    )
    return raw.headers, raw.parse()


def post(served, **body):
    wanted = {"prompt": "The json module", "max_tokens": 4, "temperature": 0}
    return served.http.post("/v1/completions", json=wanted | body)


def about(served, route):
    found = served.http.get("/v1/routes").json()["data"]
    return next(each for each in found if each["id"] == route)


def running(served):
    found = served.http.get("/v1/lanes").json()
    waiting = sum(lane["waiting"] for lane in found["data"])
    return waiting + sum(model["running"] for model in found["models"])


class Stopped:
    """Halts an engine's process: what is sent to it waits."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *error):
        os.kill(self.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "route, target, why",
    [
        ("content", "small", "first: the first of the cascade"),
        ("strict", "large", "escalated: small: mean log-probability"),
        ("short", "large", f"escalated: small: {FUNCTIONS}:is_short: failed"),
        ("sized", "small", "rule: rule 1: length 0 to 20"),
        ("by_lane@offline", "large", "rule: rule 1: lane offline"),
        ("safe", "large", "first: the first of the fallback"),
        ("vote", "", "member: "),  # whichever is first
        ("nested", "large", "first: the first of the fallback; escalated: small"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_route_answers_as_a_model_does(served, route, target, why, stream):
    headers, answer = chat(served, route, stream=stream)
    assert headers["x-headway-route"] == route.partition("@")[0]
    target = target or headers["x-headway-route-target"]
    assert headers["x-headway-route-target"] == target
    assert headers["x-headway-route-decision"].startswith(why)
    _, alone = chat(served, target)
    expected = alone.choices[0]
    if not stream:
        assert (answer.model, answer.choices[0]) == (target, expected)
        assert answer.choices[0].logprobs is None and answer.usage == alone.usage
        return
    chunks = list(answer)
    text = "".join(each.choices[0].delta.content or "" for each in chunks)
    assert {each.model for each in chunks} == {target}
    assert (text, chunks[-1].choices[0].finish_reason) == (
        expected.message.content,
        expected.finish_reason,
    )
    assert all(each.choices[0].logprobs is None for each in chunks)


def test_log_probabilities_are_given_to_a_client_that_asks(served):
    wanted = {"logprobs": True, "top_logprobs": 2}
    _, answer = chat(served, "strict", **wanted)
    _, stream = chat(served, "strict", stream=True, **wanted)
    _, alone = chat(served, "large", **wanted)
    whole = []
    for one in stream:
        if one.choices[0].logprobs:
            whole += one.choices[0].logprobs.content
    assert answer.choices[0].logprobs == alone.choices[0].logprobs
    assert [each.token for each in whole] == [
        each.token for each in alone.choices[0].logprobs.content
    ]


def test_a_stream_of_a_judged_answer_has_its_usage(served):
    _, stream = chat(served, "strict", stream=True, stream_options={"include_usage": True})
    last = list(stream)[-1]
    assert not last.choices and last.usage.completion_tokens == 8


def test_rules_route_by_the_number_of_prompt_tokens(served):
    _, answer = chat(served, "sized")
    assert answer.model == "small"
    assert post(served, model="sized", prompt="json " * 30).json()["model"] == "large"
    assert post(served, model="sized", prompt=[5] * 20).json()["model"] == "small"
    assert post(served, model="sized", prompt=[5] * 21).json()["model"] == "large"


def test_an_answer_that_no_judge_accepts_is_marked_as_not_accepted(served):
    answer = post(served, model="stubborn")
    assert answer.json()["model"] == "small"
    assert answer.headers["x-headway-route-accepted"] == "false"


def test_cheapest_goes_by_predictions_and_least_loaded_avoids_a_busy_model(served):
    for name in ("small", "large"):
        served.http.post("/v1/completions", json={"model": name, "prompt": "x"})
    said = [post(served, model="cheap").headers["x-headway-route-decision"] for _ in range(3)]
    assert said[2].startswith("cheapest: predicted within"), said
    with Stopped(served.pids["small"]):
        thread = threading.Thread(target=post, args=[served], kwargs={"model": "small"})
        thread.start()
        until(lambda: running(served) == 1)
        assert post(served, model="spread").json()["model"] == "large"
    thread.join(30)


def test_several_choices_and_prompts_are_answered_where_nothing_is_judged(served):
    _, answer = chat(served, "safe", n=3)
    assert len(answer.choices) == 3
    two = post(served, model="sized", prompt=["The json", "A class"], echo=True).json()
    assert [each["text"][:3] for each in two["choices"]] == ["The", "A c"]


@pytest.mark.parametrize(
    "body, param", [({"n": 2}, "n"), ({"prompt": ["a", "b"]}, "prompt"), ({"echo": True}, "echo")]
)
def test_n_several_prompts_and_echo_are_refused_where_answers_are_judged(served, body, param):
    answer = post(served, model="vote", **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, "not_supported")
    assert "the route 'vote' judges whole answers" in error["message"]


def test_a_route_is_listed_as_a_model_and_refused_by_other_endpoints(served):
    listed = {each.id: each for each in served.client.models.list()}
    assert set(ROUTES) <= set(listed) and "safe@offline" in listed
    one = served.client.models.retrieve("safe")
    assert one.model_dump()["max_model_len"] == 256 and one.model_dump()["root"] == "safe"
    for path, body in (
        ("/v1/embeddings", {"model": "safe", "input": "x"}),
        ("/tokenize", {"model": "safe", "prompt": "x"}),
    ):
        error = served.http.post(path, json=body).json()["error"]
        assert error["code"] == "not_a_model" and "is a route" in error["message"]
    unknown = post(served, model="saef")
    assert unknown.status_code == 404 and "safe" in unknown.json()["error"]["message"]


def test_a_request_that_is_invalid_too_long_or_without_a_rule_is_refused(served):
    for body in ({"prompt": ""}, {"structured_outputs": {"regex": "("}}):
        answer = post(served, model="safe", **body)
        assert answer.status_code == 400 == post(served, model="large", **body).status_code
    long = post(served, model="safe", prompt="json " * 400)
    assert long.json()["error"]["code"] == "context_length_exceeded"
    nobody = post(served, model="gone")
    assert nobody.json()["error"]["code"] == "no_rule"
    (last, *_) = about(served, "safe")["latest"]
    assert [each["outcome"] for each in last["attempts"]] == ["refused", "refused"]


def test_a_request_that_no_token_can_satisfy_opens_no_circuit(served):
    stuck = {"structured_outputs": {"choice": ["yes"]}, "min_tokens": 4}
    for stream in [False, True] * 3:
        answer = post(served, model="safe", stream=stream, **stuck)
        assert "unsatisfiable" in answer.text and "engine_error" not in answer.text
    answer = post(served, model="safe")
    assert (answer.status_code, answer.json()["model"]) == (200, "large")


def test_a_late_target_is_passed_over_and_the_deadline_is_of_the_whole_request(served):
    with Stopped(served.pids["large"]):
        answer = post(served, model="impatient")
        assert answer.json()["model"] == "small"
        assert answer.headers["x-headway-route-decision"].startswith("after_lateness: large")
        body = {"model": "strict", "prompt": "x", "max_tokens": 2}
        unhurried = {"x-headway-timeout-ms": "4000"}  # a slow machine answers within it
        late = served.http.post("/v1/completions", json=body, headers=unhurried)
    assert late.json()["model"] == "small", "the best there is"
    assert late.headers["x-headway-route-accepted"] == "false"
    with Stopped(served.pids["small"]):
        deadline = {"x-headway-timeout-ms": "300"}
        late = served.http.post("/v1/completions", json=body, headers=deadline)
    assert late.status_code == 408 and late.json()["error"]["code"] == "deadline_exceeded"
    until(lambda: running(served) == 0)


def test_a_client_that_leaves_cancels_every_attempt(served):
    before = about(served, "vote")["decisions"]
    long = {"prompt": "x", "max_tokens": 200, "ignore_eos": True}
    asked = json.dumps({"model": "vote"} | long).encode()
    with Stopped(served.pids["small"]), Stopped(served.pids["large"]):
        leaving = Hostile(str(served.http.base_url)).say(head_of(len(asked)), asked)
        until(lambda: running(served) == 3)
        leaving.close()
    until(lambda: about(served, "vote")["decisions"] > before)
    (last, *_) = about(served, "vote")["latest"]
    assert last["error"] == "the caller left"
    assert [each["outcome"] for each in last["attempts"]] == ["cancelled"] * 3
    assert all(each["measured"] for each in last["attempts"])
    until(lambda: [line for line in served.lines if line.get("status") == 499])
    (logged,) = [line for line in served.lines if line.get("status") == 499]
    assert logged["code"] == "client_gone"
    with served.http.stream(
        "POST", "/v1/completions", json={"model": "safe", "stream": True} | long
    ) as stream:
        next(stream.iter_raw())
    until(
        lambda: [row["error"] for row in about(served, "safe")["latest"]][:1] == ["the caller left"]
    )
    assert about(served, "safe")["latest"][0]["attempts"][0]["outcome"] == "cancelled"
    until(lambda: running(served) == 0)


def test_a_request_is_cancelled_by_its_id(served):
    found, sent = {}, threading.Event()

    def ask():
        sent.set()
        headers = {"x-request-id": "mine"}
        body = {"model": "vote", "prompt": "x"}
        found["answer"] = served.http.post("/v1/completions", json=body, headers=headers)

    with Stopped(served.pids["small"]), Stopped(served.pids["large"]):
        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: running(served) == 3)
        assert served.http.post("/v1/requests/mine/cancel").status_code == 200
        thread.join(30)
    assert found["answer"].status_code == 409
    until(lambda: running(served) == 0)


def test_decisions_are_counted_logged_and_readable(served):
    chat(served, "strict")
    until(lambda: about(served, "strict")["decisions"] > 0)
    state = about(served, "strict")
    assert (state["kind"], state["streams"]) == ("cascade", False)
    assert state["settings"]["accept"]["confidence"] == 0
    assert about(served, "short")["settings"]["accept"]["function"] == "set"
    (last, *_) = state["latest"]
    assert [each["outcome"] for each in last["attempts"]] == ["rejected", "won"]
    assert all(each["measured"] and each["device_ms"] > 0 for each in last["attempts"])
    assert "measured" in state["saved_ms"] and state["shares"]["large"] > 0
    text = served.http.get("/metrics").text
    families = {each.name: each for each in text_string_to_metric_families(text)}

    def value(name, **labels):
        samples = families[name].samples
        return sum(one.value for one in samples if labels.items() <= one.labels.items())

    assert value("headway_route_decisions", route="strict", why="escalated", target="large") > 0
    assert value("headway_route_attempts", route="strict", outcome="rejected", target="small") > 0
    spent = value("headway_route_device_seconds", route="strict", basis="measured")
    assert spent > value("headway_route_alone_seconds", route="strict", basis="measured") > 0
    said = [line for line in served.lines if line.get("route") == "strict"]
    assert said and said[-1]["model"] in ("small", "large") and said[-1]["decision"]


def test_a_request_cut_off_by_a_drain_is_told_the_drain_timeout(tmp_path):
    config = {**CONFIG, "routes": {"only": {"rules": [{"to": "small"}]}}}
    config["server"] = {"drain_timeout": "1s"}
    found = {}
    with (
        served_process.served(config, tmp_path, FAKE_ENGINES) as own,
        httpx2.Client(base_url=own.url, timeout=60) as http,
    ):
        body = {"model": "only", "prompt": "x"}

        def ask():
            found["answer"] = http.post("/v1/completions", json=body)

        os.kill(own.said["engine_pids"]["small"], signal.SIGSTOP)
        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: running(SimpleNamespace(http=http)) == 1)
        own.process.terminate()
        thread.join(60)
    assert "this did not end within 1 s" in found["answer"].text


def test_a_killed_engine_makes_the_fallback_work(served):
    """The last test: it changes the engine's process."""
    found = {}

    def ask():
        found["answer"] = post(served, model="safe")

    os.kill(served.pids["large"], signal.SIGSTOP)
    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: running(served) == 1)  # in the stopped engine
    os.kill(served.pids["large"], signal.SIGKILL)
    thread.join(60)
    answer = found["answer"]
    assert (answer.status_code, answer.json()["model"]) == (200, "small")
    assert answer.headers["x-headway-route-decision"].startswith("after_error: large")
    assert served.http.get("/v1/models/large").json()["max_model_len"] == 256
    for route in ("safe", "spread", "strict"):  # while the engine is away
        again = post(served, model=route, stream=route == "safe")
        assert again.headers["x-headway-route-target"] == "small", again.text
    until(lambda: len([each for each in served.lines if each["event"] == "engine restarted"]))
    until(lambda: post(served, model="large").status_code == 200)
    assert post(served, model="safe").json()["model"] == "large"
