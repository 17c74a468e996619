"""Caps of keys: on max_tokens and n, and on the money of a day, across restarts and outages."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy import insert

from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import KeySettings, digest
from headway.server.config.sections.limits import LimitSettings
from headway.server.config.sections.prices import BILLION, PriceSettings
from headway.server.intake.limits.spend import HEADER, SpendControl
from headway.server.protocol.fields import ChatBody
from headway.server.protocol.problem import Problem
from headway.server.protocol.request import chat_request
from headway.store.database import Database, StoreError
from headway.store.ledger.ledger_tables import SPEND
from tests.server import served_process
from tests.server.running_server import fake, serving, until
from tests.server.served_process import FAKE_ENGINES

PATH = "/v1/completions"
PRICES = {"per_million_prompt": 1.0, "per_million_cached": 0.5, "per_million_answer": 2.0}


@pytest.fixture(autouse=True)
def one_day(monkeypatch):
    """The day does not end during a test: spend begins anew at midnight, UTC."""
    today = clock.day()
    monkeypatch.setattr(clock, "day", lambda: today)


def key_of(**caps):
    return {"name": "ci", "sha256": digest("ci").hex(), "caps": caps}


def config_of(tmp_path, when_away="allow", **caps):
    ledger = {"url": str(tmp_path / "ledger.db"), "flush": "50ms", "when_away": when_away}
    return ServerConfig(ledger=ledger, keys=[key_of(**caps)], prices=PRICES)


def client_of(url):
    return httpx2.Client(base_url=url, headers={"authorization": "Bearer ci"}, timeout=30)


def post(client, tokens=None, id="", **more):
    body = {
        "prompt": "def f(",
        "ignore_eos": True,
        **({} if tokens is None else {"max_tokens": tokens}),
        **more,
    }
    return client.post(PATH, json=body, headers={"x-request-id": id} if id else None)


def waiting(client):
    return sum(lane["waiting"] for lane in client.get("/v1/lanes").json()["data"])


def refusal(answer):
    return answer.status_code, answer.json()["error"]["code"]


def left(answer):
    """The money that the key may still spend today, in millionths."""
    return round(float(answer.headers[HEADER]) * 1e6)


def test_max_tokens_and_n_are_capped_by_key_and_lane():
    lanes = {"offline": {"max_tokens": 3, "n": 1}}
    config = ServerConfig(keys=[key_of(max_tokens=6, n=2, lanes=lanes)])
    with serving(config, fake) as (url, _), client_of(url) as client:
        assert refusal(post(client, 7)) == (400, "max_tokens_capped")
        assert refusal(post(client, 6, n=3)) == (400, "n_capped")
        assert post(client, 6, n=2).status_code == 200
        assert post(client).json()["usage"]["completion_tokens"] == 6, "where it does not say"
        turns = {"messages": [{"role": "user", "content": "hi"}]}
        answer = client.post("/v1/chat/completions", json=turns).json()
        assert answer["usage"]["completion_tokens"] <= 6
        assert refusal(post(client, min_tokens=7)) == (400, "max_tokens_capped")
        client.headers["x-headway-lane"] = "offline"
        assert refusal(post(client, 4)) == (400, "max_tokens_capped")
        assert refusal(post(client, 3, n=2)) == (400, "n_capped")
        answer = post(client)
        assert answer.json()["usage"]["completion_tokens"] == 3 and HEADER not in answer.headers


def test_a_request_reserves_its_worst_case_and_is_settled_at_its_cost(tmp_path):
    config = config_of(tmp_path, money_per_day=0.0001)  # a hundred millionths
    with serving(config, fake) as (url, front), client_of(url) as client:
        first = post(client, 5)
        prompt = first.json()["usage"]["prompt_tokens"]
        assert left(first) == 100 - prompt - 2 * 5
        until(lambda: not front.spend._reserved)
        much = post(client, 60)
        assert refusal(much) == (429, "spend_limit_reached")
        assert much.headers["x-should-retry"] == "false"
        assert left(much) == 100 - prompt - 10
        again = post(client, 5)  # its prompt may be in the cache by then
        assert again.status_code == 200
        until(lambda: front.ledger.writers[0].written == 3)  # the refused one has a row too
    with serving(config, fake) as (url, front), client_of(url) as client:
        spent = sum(front.spend._others[1].values())
        third = post(client, 1)
        assert left(third) == (100_000 - spent) // 1_000 - prompt - 2
        assert spent >= 1_000 * (prompt // 2 + prompt) + 2_000 * 10


def test_a_request_that_its_keys_rate_refuses_reserves_no_money():
    config = ServerConfig(keys=[key_of() | {"tokens_per_minute": 40}], prices=PRICES)
    with serving(config, fake) as (url, front), client_of(url) as client:
        assert post(client, 20).status_code == 200
        until(lambda: not front.spend._reserved)
        assert refusal(post(client, 20)) == (429, "rate_limit_exceeded")
        assert not front.spend._reserved


def test_a_money_cap_of_one_lane_does_not_limit_the_others(tmp_path):
    lanes = {"offline": {"money_per_day": 0.00002}}
    config = config_of(tmp_path, money_per_day=1.0, lanes=lanes)
    with serving(config, fake) as (url, _), client_of(url) as client:
        assert post(client, 10).status_code == 200
        client.headers["x-headway-lane"] = "offline"
        assert refusal(post(client, 10)) == (429, "spend_limit_reached")
        assert post(client, 2).status_code == 200


def test_other_servers_spending_is_read_although_the_clock_was_set_back(tmp_path, monkeypatch):
    monkeypatch.setattr("headway.server.ledger.writer.LOOK", 10**7)
    with serving(config_of(tmp_path, money_per_day=1.0), fake) as (_, front):
        until(lambda: front.ledger.writers[0].last_written > front.ledger.writers[0]._writer.began)
        real = clock.epoch
        monkeypatch.setattr(clock, "epoch", lambda: real() - 3_600 * 10**9)
        store = Database(str(tmp_path / "ledger.db"), alone=False)
        spent = {"day": clock.day(), "key": "ci", "lane": "chat", "writer": "other", "money": 7}
        with store.begin() as connection:
            connection.execute(insert(SPEND).values(spent))
        store.close()
        until(lambda: 7 in front.spend._others[1].values())


def test_a_cap_that_a_reload_brings_counts_what_an_earlier_process_charged(tmp_path):
    store = Database(str(tmp_path / "ledger.db"))
    spent = {"day": clock.day(), "key": "ci", "lane": "chat", "writer": "other", "money": 10**9}
    with store.begin() as connection:
        connection.execute(insert(SPEND).values(spent))
    store.close()
    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        front.spend.replace(config_of(tmp_path, money_per_day=1.0).keys)
        assert refusal(post(client, 2)) == (429, "spend_limit_reached")


@pytest.mark.parametrize("when_away, status", [("allow", 200), ("refuse", 503)])
def test_when_away_decides_whether_requests_pass_while_the_ledger_is_away(
    tmp_path, monkeypatch, when_away, status
):
    config = config_of(tmp_path, when_away, money_per_day=0.0001)
    with serving(config, fake) as (url, front), client_of(url) as client:
        writer = front.ledger.writers[0]

        def gone(*given):
            raise StoreError("the disk is full")

        assert post(client, 5).status_code == 200
        with monkeypatch.context() as patched:
            patched.setattr(writer._store, "write", gone)
            until(lambda: front.spend.is_away())
            assert post(client, 5).status_code == status
            assert post(client, 60).status_code in (429, 503), "by the last known totals"
        until(lambda: not front.spend.is_away())
        assert post(client, 5).status_code == 200


def test_an_engine_down_for_good_releases_its_requests_reserved_money(tmp_path):
    config = {
        "models": [{"name": "whole"}, {"name": "broken", "engine": {"restart": 0}}],
        "engine": {"slots": 2, "context": 256, "threads": 1},
        "routes": {"only": {"rules": [{"to": "broken"}]}},
        "prices": PRICES,
        "keys": [key_of(money_per_day=1.0)],
        "ledger": {"url": str(tmp_path / "ledger.db")},
    }
    with (
        served_process.served(config, tmp_path, FAKE_ENGINES) as server,
        client_of(server.url) as client,
        ThreadPoolExecutor() as pool,
    ):
        pid = server.said["engine_pids"]["broken"]
        before = left(post(client, 1, model="whole"))
        os.kill(pid, signal.SIGSTOP)
        try:
            asking = [
                pool.submit(post, client, 200, name, model=name) for name in ("broken", "only")
            ]
            until(lambda: waiting(client) == 2)
            for name in ("broken", "only"):
                assert client.post(f"/v1/requests/{name}/cancel").status_code == 200
            assert [each.result().status_code for each in asking] == [409, 409]
            assert left(post(client, 1, model="whole")) < before - 800, "it is reserved"
        finally:
            os.kill(pid, signal.SIGKILL)
        until(lambda: [each for each in server.lines if each["event"] == "engine down for good"])
        assert before - 50 < left(post(client, 1, model="whole")) < before
        assert client.get("/v1/routes").json()["data"][0]["decisions"] == 1
        broken = [each for each in client.get("/metrics").text.splitlines() if '"broken"' in each]
        for name, label in (
            ("headway_requests_total", "cancelled"),
            ("vllm:request_success", "abort"),
        ):
            counted = [each for each in broken if each.startswith(name) and f'"{label}"' in each]
            assert sum(float(each.split()[-1]) for each in counted) == 2, name


@pytest.mark.parametrize(
    "more, why",
    [
        ({"prices": PRICES}, "needs ledger.url"),
        ({"ledger": {"url": "a.db"}}, "needs prices of tokens"),
    ],
)
def test_a_money_cap_without_a_ledger_or_without_prices_is_refused(more, why):
    with pytest.raises(ValidationError, match=why):
        ServerConfig(keys=[key_of(money_per_day=1.0)], **more)
    with pytest.raises(ValidationError, match=why):
        ServerConfig(keys=[key_of(lanes={"offline": {"money_per_day": 1.0}})], **more)


def test_a_cap_in_an_unknown_lane_is_refused():
    with pytest.raises(ValidationError, match="there is no lane 'ofline'"):
        ServerConfig(keys=[key_of(lanes={"ofline": {"n": 1}})])


calls = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.floats(0, 1)), max_size=30)


@given(calls, st.integers(1, 200), st.integers(0, 100))
def test_a_key_never_spends_more_than_its_cap(asked, cap, others):
    prices, days = PriceSettings(per_million_prompt=1e6, per_million_answer=1e6), [5]
    key = KeySettings(name="ci", sha256=digest("ci").hex(), caps={"money_per_day": cap})
    control = SpendControl([key], prices, lambda: days[0])
    tenant, spent, open = key.to_tenant(["a"], "a"), 0, []
    control.refresh(5, {("ci", "a"): others * BILLION})
    for number, (prompt, answer, share) in enumerate(asked):
        try:
            control.reserve(str(number), tenant, "a", (prompt, answer))
        except Problem as problem:
            assert problem.code == "spend_limit_reached"
            assert spent + others + sum(worst for _, worst, _ in open) + prompt + answer > cap
        else:
            open.append((str(number), prompt + answer, round(share * (prompt + answer))))
            assert spent + others + sum(worst for _, worst, _ in open) <= cap
        if open and number % 2:
            id, _, cost = open.pop(0)
            assert control.release(id, cost * BILLION) == 5
            spent += cost
    for id, _, cost in open:
        control.release(id, cost * BILLION)
        spent += cost
    told = control.headers(tenant, "a")[HEADER]
    assert float(told) == max(0, cap - spent - others) and not control._reserved
    days[0] = 7
    assert float(control.headers(tenant, "a")[HEADER]) == cap, "another day has another sum"
    control.reserve("late", tenant, "a", (1, 0))
    control.release("late", 0)
    assert {day for day, _, _ in control._charged} <= {7}


def test_a_request_that_is_let_in_while_other_servers_totals_come_counts():
    """They come in the ledger's thread."""
    prices = PriceSettings(per_million_prompt=1e6)
    key = KeySettings(name="ci", sha256=digest("ci").hex(), caps={"money_per_day": 10})
    control, tenant = SpendControl([key], prices, lambda: 5), key.to_tenant(["a", "b"], "a")

    class Totals(dict):
        def __iter__(self):
            control.reserve("1", tenant, "b", (3, 0))
            return super().__iter__()

    control.refresh(5, Totals({("ci", "a"): BILLION}))
    assert float(control.headers(tenant, "a")[HEADER]) == 10 - 3 - 1


def test_a_key_without_caps_is_not_limited():
    control = SpendControl((), PriceSettings(), lambda: 1, refuses_when_away=True)
    tenant = KeySettings(name="x", sha256=digest("x").hex()).to_tenant(["a"], "a")
    control.is_away = lambda: True
    request = chat_request(
        ChatBody(messages=[{"role": "user", "content": "x"}], n=16, max_tokens=10**6),
        LimitSettings(),
    )
    assert control.check(tenant, "a", request) is request
    control.reserve("1", tenant, "a", (10**6, 10**6))
    assert control.release("1", 0) == 1 and control.headers(tenant, "a") == {}
