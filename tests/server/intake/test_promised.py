"""The arrival times that requests are promised, as a server's clients and operators see them."""

import re

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.core.cost.lengths import ENOUGH
from headway.core.request import NEVER
from headway.server.answering.eta import Eta
from headway.server.config.config import ServerConfig
from tests.server.running_server import fake, hopeless, serving, until

CONFIG = ServerConfig(engine={"cost": "cost.json"}, lanes={"chat": {}, "bulk": {}})
MINUTE = 60_000  # milliseconds of each step, as the cost model of `hopeless` predicts


def ask(url, lane="chat", **more):
    asked = {"prompt": [5], "max_tokens": 3, "ignore_eos": True} | more
    headers = {"x-headway-lane": lane}
    return httpx2.post(f"{url}/v1/completions", json=asked, headers=headers, timeout=60)


def eta(answer):
    return {name: int(ms) for name, ms in re.findall(r"(\w+)=(\d+)", promised(answer))}


def promised(answer):
    return answer.headers["x-headway-eta-ms"]


def counted(url, name):
    families = text_string_to_metric_families(httpx2.get(f"{url}/metrics").text)
    samples = [each for family in families for each in family.samples if each.name == name]
    ours = ("lane", "came", "outcome")
    return {
        tuple(each.labels[label] for label in ours if label in each.labels): each.value
        for each in samples
    }


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"logprobs": 1}, {"n": 2}])
def test_an_answers_header_gives_its_promised_first_token_and_end(more):
    with serving(CONFIG, hopeless) as (url, _):
        answer = ask(url, **more)
        assert re.fullmatch(r"first=\d+, done=\d+", promised(answer))
        found = eta(answer)
        assert MINUTE <= found["first"] < 2 * MINUTE, "its prompt was in the next step"
        assert found["done"] - found["first"] >= 2 * MINUTE, "two more tokens"


def test_a_request_that_generates_nothing_is_promised_only_its_end():
    with serving(CONFIG, hopeless) as (url, _):
        answer = ask(url, max_tokens=0, echo=True, logprobs=1)
        assert list(eta(answer)) == ["done"] and eta(answer)["done"] >= MINUTE


def test_without_a_cost_model_nothing_is_promised():
    with serving(ServerConfig(lanes={"chat": {}}), fake) as (url, _):
        assert "x-headway-eta-ms" not in ask(url).headers
        (lane,) = httpx2.get(f"{url}/v1/lanes").json()["data"]
        assert lane["eta"] is None
        assert set(counted(url, "headway_end_promises_total").values()) == {0.0}


def test_lanes_show_the_present_promise_and_metrics_count_kept_ones():
    with serving(CONFIG, hopeless) as (url, front):

        def lanes():
            return {
                each["id"]: each["eta"] for each in httpx2.get(f"{url}/v1/lanes").json()["data"]
            }

        assert lanes() == {"chat": None, "bulk": None}
        for _ in range(ENOUGH):
            assert ask(url).status_code == 200
        until(lambda: front.model.engine.load.running == 0)
        until(lambda: lanes()["chat"])
        assert lanes()["bulk"] is None, "it has had no prompts yet"
        assert lanes()["chat"]["prompt_tokens"] == 1
        assert lanes()["chat"]["age_ms"] >= 0
        assert lanes()["chat"]["first_token_ms"] > 50_000, "the engine is found to be quicker"
        kept = counted(url, "headway_end_promises_total")
        assert kept["chat", "kept"] == ENOUGH and sum(kept.values()) == ENOUGH
        came = counted(url, "headway_first_token_promises_total")
        assert came["chat", "earlier"] == ENOUGH and sum(came.values()) == ENOUGH
        errors = counted(url, "headway_first_token_promise_error_seconds_sum")
        assert errors["chat",] > 50 * ENOUGH and errors["bulk",] == 0


def test_a_calls_promise_is_its_earliest_first_token_and_its_latest_end():
    found = Eta(1_000_000_000)
    assert found.ms == {} and found.headers == {}
    found.hear(())
    found.hear((NEVER, 3_000_000_000))
    assert found.headers == {"x-headway-eta-ms": "done=2000"}
    found.hear((2_500_000_000, 2_600_000_000))
    found.hear((2_400_000_000, 2_900_000_000))
    assert found.ms == {"first": 1_400.0, "done": 2_000.0}
