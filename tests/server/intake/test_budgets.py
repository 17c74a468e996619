"""Lanes that are scheduled by their budgets, as a server's clients see them."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.core.cost.step_cost import Rates, StepCost
from headway.engine import Executor
from headway.server import clock
from headway.server.config.config import ServerConfig
from tests.commands.small_cost_model import COST
from tests.server.running_server import (
    Permitted,
    by_budgets,
    hopeless,
    relay,
    serving,
    tiny,
    until,
)


@contextmanager
def foreseeing(late):
    """A server that predicts every request of the lane `chat` to be late."""
    lanes = {"chat": {"ttft": "1s", "late": late}, "bulk": {}}
    config = ServerConfig(engine={"slots": 4, "cost": "cost.json"}, lanes=lanes)
    with serving(config, hopeless) as (url, front):
        yield url, front


def ask(url, lane, **more):
    asked = {"prompt": "x", "max_tokens": 3, "ignore_eos": True, "temperature": 0} | more
    headers = {"x-headway-lane": lane}
    return httpx2.post(f"{url}/v1/completions", json=asked, headers=headers, timeout=60)


def samples(url, name):
    families = text_string_to_metric_families(httpx2.get(f"{url}/metrics").text)
    return [each for family in families for each in family.samples if each.name == name]


def counted(url, name):
    return {each.labels["lane"]: each.value for each in samples(url, name)}


def outcomes(url):
    found = samples(url, "headway_requests_total")
    return {each.labels["outcome"]: each.value for each in found if each.value}


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"logprobs": 1}, {"n": 2}])
def test_a_late_request_is_relegated_and_its_answer_says_so(more):
    with foreseeing("relegate") as (url, _):
        late, other = ask(url, "chat", **more), ask(url, "bulk", **more)
        assert (late.status_code, other.status_code) == (200, 200)
        assert late.headers["x-headway-relegated"] == "true"
        assert late.headers["x-headway-lane"] == "chat"
        assert "x-headway-relegated" not in other.headers
        count = more.get("n", 1)
        assert counted(url, "headway_relegated_total") == {"chat": count, "bulk": 0}


def test_a_lane_that_refuses_late_requests_answers_429_with_retry_after():
    with foreseeing("refuse") as (url, front):
        answers = [ask(url, "chat"), ask(url, "chat", stream=True), ask(url, "chat", n=2)]
        for answer in answers:
            assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
            said = answer.json()["error"]
            assert said["code"] == "lane_full"
            assert said["message"] == "its first token is not expected within 1 s of its arrival"
        until(lambda: front.model.engine.load.lanes["chat"].waiting == 0)
        assert counted(url, "headway_relegated_total") == {"chat": 0, "bulk": 0}
        assert outcomes(url) == {"refused": 4}, "each choice"
        assert ask(url, "bulk").status_code == 200


def ended_together(config, engine, executor, lane, prompts, **headers):
    """Make a call of several prompts that an error ends in its first two steps. Returns the error's
    code, the requests' outcomes, the refusal counter's values, and the finishes in the rows."""
    finishes = []
    with serving(config, engine) as (url, front), ThreadPoolExecutor() as pool:
        admission = front.model.admission
        admission.listeners.append(lambda steps, rows: finishes.extend(row.finish for row in rows))
        body = {"prompt": prompts, "max_tokens": 100, "ignore_eos": True}
        headers = {"x-headway-lane": lane} | headers
        told = {"json": body, "headers": headers, "timeout": 60}
        call = pool.submit(httpx2.post, f"{url}/v1/completions", **told)
        until(lambda: executor.asked == 1)
        come = clock.now()
        until(lambda: clock.now() > come + 500_000_000)  # the time limit of the call that expires
        executor.permits.release(2)
        answer = call.result()
        executor.permits.release(10_000)
        until(lambda: len(finishes) == len(prompts))
        until(lambda: sum(outcomes(url).values()) == len(prompts))
        refusals = [each.value for each in samples(url, "headway_refusals_total") if each.value]
        return answer.json()["error"]["code"], outcomes(url), refusals, finishes


def test_the_other_requests_of_a_refused_call_are_refused_too():
    """Each token takes a second: the short prompts are in time, and the long ones are not."""
    lanes = {"chat": {"ttft": "60s", "late": "refuse"}, "bulk": {}}
    config = ServerConfig(engine={"slots": 4, "cost": "cost.json"}, lanes=lanes)
    executor = Permitted()

    def engine(config):
        return by_budgets(config, executor, StepCost(Rates(token=10**12)))

    prompts = [[5 + i] * (4 if i < 3 else 150) for i in range(8)]
    ended = ended_together(config, engine, executor, "chat", prompts)
    assert ended == ("lane_full", {"refused": 8}, [8], ["refused"] * 8)


def test_the_other_requests_of_an_expired_call_are_expired_too():
    """Three requests run, and five have waited too long."""
    config, executor = ServerConfig(engine={"slots": 3}), Permitted()
    prompts, wait = [[5 + i] * 4 for i in range(8)], {"x-slo-ttft-ms": "500"}
    ended = ended_together(config, executor.engine, executor, "standard", prompts, **wait)
    assert ended == ("deadline_exceeded", {"expired": 8}, [8], ["expired"] * 8)


class Gate(Executor):
    """An executor that takes no step while it is shut."""

    def __init__(self, executor):
        self.executor, self.open = executor, Event()
        self.open.set()
        self.rows = 0  # of the latest step
        self.collect = executor.collect

    def submit(self, batch):
        self.rows = len(batch.rows)
        assert self.open.wait(60)
        return self.executor.submit(batch)


LANES = {
    "interactive": {"ttft": "5m", "tpot": "5m"},
    "offline": {"priority": 1, "slots": {"least": 1}},
}
LONG, SHORT = 64, 8  # tokens of an answer


def test_offline_requests_give_their_slots_to_interactive_ones_and_end_whole():
    """The flood: all interactive answers end before the first offline answer. Each offline answer
    has the text that it has when it runs alone."""
    engine = {"slots": 4, "cost": "cost.json", "step_tokens": 512}
    config = ServerConfig(engine=engine, lanes=LANES)
    gates, rows = [], []

    def embedded(config):
        relay().hand_over()
        gates.append(Gate(relay()))
        plan = tiny().plan
        return by_budgets(config, gates[0], COST, plan.num_blocks, plan.context)

    with serving(config, embedded) as (url, front), ThreadPoolExecutor(16) as pool:
        front.model.admission.listeners.append(lambda steps, requests: rows.extend(requests))
        prompts = [f"The {word} module" for word in ("json", "os", "math", "time", "abc", "re")]
        (gate,) = gates
        gate.open.clear()
        offline = [
            pool.submit(ask, url, "offline", prompt=prompt, max_tokens=LONG) for prompt in prompts
        ]
        until(lambda: front.model.admission.open == len(offline))
        gate.open.set()
        until(lambda: gate.rows == 4)
        gate.open.clear()
        before = front.model.admission.open
        interactive = [
            pool.submit(ask, url, "interactive", prompt=f"Why {i}?", max_tokens=SHORT)
            for i in range(5)
        ]
        until(lambda: front.model.admission.open == before + 5)
        gate.open.set()
        texts = [each.result().json()["choices"][0]["text"] for each in offline]
        assert [each.result().status_code for each in interactive] == [200] * 5
        ended = [row.lane for row in rows]
        assert ended == ["interactive"] * 5 + ["offline"] * 6
        assert [row.generated for row in rows] == [SHORT] * 5 + [LONG] * 6
        assert all(row.good and not row.relegated for row in rows[:5])
        assert sum([row.preemptions for row in rows[:5]]) == 0
        assert sum([row.preemptions for row in rows[5:]]) >= 3, "all but the slot that it keeps"
        alone = [ask(url, "offline", prompt=prompt, max_tokens=LONG) for prompt in prompts]
        assert texts == [each.json()["choices"][0]["text"] for each in alone]
