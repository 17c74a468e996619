"""The expected length and the due time of an answer, from the caller's headers to the scheduler."""

import httpx2
import pytest

from headway.core.cost.step_cost import StepCost
from headway.core.request import NEVER
from headway.executor.fake import FakeExecutor
from headway.server.config.config import ServerConfig
from tests.server.running_server import BLOCK, by_budgets, fake, requests_sent, serving, until

ASKED = {"prompt": ["one two", "three four"], "ignore_eos": True, "temperature": 0}
HEADER = "X-Headway-Expected-Tokens"


def ask(url, path="completions", headers=(), **asked):
    return httpx2.post(f"{url}/v1/{path}", json=asked, headers=dict(headers), timeout=60)


@pytest.mark.parametrize("said, heard", [({HEADER: "7"}, 7), ({HEADER: "900"}, 12), ({}, 0)])
def test_each_request_expects_the_headers_tokens_but_at_most_max_tokens(said, heard):
    with serving(engine=fake) as (url, front):
        sent = requests_sent(front.model.engine)
        asked = ASKED | {"n": 2, "max_tokens": 12}
        assert ask(url, headers=said, **asked).status_code == 200
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12}
        assert ask(url, "chat/completions", headers=said, **chat).status_code == 200
        assert [each.expected for each in sent] == [heard] * 5
        assert {each.due for each in sent} == {NEVER}
        sent.clear()
        assert ask(url, headers={"X-Headway-Due-Ms": "5000"}, **asked).status_code == 200
        assert {each.due - each.arrived for each in sent} == {5_000_000_000}


def test_a_route_passes_the_due_time_on_to_its_model():
    config = ServerConfig(models=[{"name": "one"}], routes={"safe": {"fallback": ["one"]}})
    with serving(config, engine=fake) as (url, front):
        sent = requests_sent(front.model.engine)
        asked = {"prompt": "one two", "max_tokens": 4, "model": "safe"}
        assert ask(url, headers={"X-Headway-Due-Ms": "60000"}, **asked).status_code == 200
        assert ask(url, **asked).status_code == 200
        due, free = sent
        assert 30e9 < due.due - due.arrived <= 60e9 and free.due == NEVER


def test_the_queue_limit_of_a_routes_attempt_counts_from_the_attempts_arrival():
    config = ServerConfig(
        models=[{"name": "one"}],
        lanes={"chat": {"queue": "5s"}},
        routes={"safe": {"fallback": ["one"]}},
    )
    with serving(config, engine=fake) as (url, front):
        sent = requests_sent(front.model.engine)
        assert ask(url, prompt="one two", max_tokens=4, model="safe").status_code == 200
        (attempt,) = sent
        assert attempt.start_by - attempt.arrived == 5_000_000_000


def test_an_invalid_expected_tokens_header_is_refused_and_named():
    with serving(engine=fake) as (url, _):
        error = ask(url, headers={HEADER: "soon"}, prompt="x")
        assert error.status_code == 400
        assert error.json()["error"] | {"type": ""} == {
            "message": "x-headway-expected-tokens must be a whole number from 1 to 1000000000, "
            "not 'soon'",
            "type": "",
            "param": "x-headway-expected-tokens",
            "code": None,
        }
        path = httpx2.get(f"{url}/openapi.json").json()["paths"]["/v1/chat/completions"]
        assert HEADER in [each["name"] for each in path["post"]["parameters"]]


def small(config):
    """An engine with room for 640 tokens, and without a cost model."""
    return by_budgets(config, FakeExecutor(40, BLOCK), StepCost(), blocks=40, context=640)


@pytest.mark.parametrize("said, together", [({HEADER: "400"}, 1), ({}, 2), ({HEADER: "50"}, 2)])
def test_memory_ahead_admits_by_the_length_that_the_caller_expects(said, together):
    config = ServerConfig(engine={"strategy": "memory-ahead"})
    with serving(config, small) as (url, front):
        steps = []
        front.model.admission.listeners.append(lambda rows, _: steps.extend(rows))
        assert ask(url, headers=said, **ASKED, max_tokens=400).status_code == 200
        until(lambda: steps)
        assert steps[0].rows == together
