"""The HTTP front with a fake executor: answers, refusals, and clients that leave."""

import asyncio
import gzip
import json
import threading
from unittest.mock import Mock

import httpx2
import pytest

from headway.core.request import Finish
from headway.models import EMBEDDED
from headway.server.answering import outgoing
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import KeySettings, digest
from headway.server.engine.handle import EngineState
from headway.server.http.exchange import EXCHANGE
from tests.server.asgi_client import BLOCKS, LONG, Client, inside, paced, until
from tests.server.running_server import Permitted, fake, serving


def error(response):
    return response.json()["error"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_cancels_its_own_request_and_no_other(stream):
    async def scene(app, service, rows):
        stays = Client(app, LONG | {"max_tokens": 50})
        goes = Client(app, LONG | {"stream": stream})
        await until(lambda: service.model.engine.load.running == 2)
        goes.left.set()
        await asyncio.gather(stays.task, goes.task)
        await until(lambda: len(rows) == 2)
        assert [row.finish for row in rows] in (
            [Finish.CANCELLED, Finish.LENGTH],
            [Finish.LENGTH, Finish.CANCELLED],
        )
        assert json.loads(stays.said)["usage"]["completion_tokens"] == 50

    inside(ServerConfig(), paced, scene)


def test_a_client_that_reads_nothing_is_cancelled_when_its_buffer_is_full(monkeypatch):
    monkeypatch.setattr(outgoing, "MOST_HELD", 2_000)

    async def scene(app, service, rows):
        slow, exchange = Client(app, LONG | {"stream": True}), Mock()
        slow.scope["extensions"] = {EXCHANGE: exchange}
        slow.reads.clear()
        await slow.task
        await until(lambda: rows)
        assert rows[0].finish is Finish.CANCELLED
        exchange.cut.assert_called_once_with()
        assert len(slow.said) < 2_000

    inside(ServerConfig(), paced, scene)


def test_echoes_queued_during_a_send_do_not_cut_off_a_client_that_reads(monkeypatch):
    monkeypatch.setattr(outgoing, "MOST_HELD", 2_000)
    asked = {"prompt": [f"{each} " + "word " * 800 for each in range(5)], "max_tokens": 1}

    async def scene(app, service, rows):
        reads = Client(app, asked | {"echo": True, "ignore_eos": True, "stream": True})
        reads.reads.clear()
        await until(lambda: len(rows) == 5)
        reads.reads.set()
        await reads.task
        assert reads.said.endswith(b"data: [DONE]\n\n") and b"error" not in reads.said
        assert len(reads.said) > 5 * 2_000

    inside(ServerConfig(engine={"slots": 1}), paced, scene)


def test_output_of_the_latest_step_does_not_count_as_unread(monkeypatch):
    monkeypatch.setattr(outgoing, "MOST_HELD", 500)
    executor = Permitted()

    async def scene(app, service, rows):
        # With this seed the first step has one choice only; of 97 tokens six have no text.
        client = Client(app, LONG | {"n": 4, "max_tokens": 8, "stream": True, "seed": 1})
        await until(lambda: service.model.admission.open)
        call = next(iter(service.model.admission._calls.values()))
        most = 0
        while not call.done:
            client.reads.clear()
            executor.permits.release()
            await until(lambda: call.out.writer)  # the output of that step is being sent
            executor.permits.release()
            await until(lambda: call.out.held or call.done)
            most = max(most, call.out.held)
            client.reads.set()
            await until(lambda: not call.out.writer or call.done)
        executor.permits.release(100)
        await client.task
        assert client.said.endswith(b"data: [DONE]\n\n") and b"error" not in client.said
        assert most > 500

    inside(ServerConfig(), executor.engine, scene)


def test_a_later_request_ends_the_earlier_one_with_the_same_supersede_key():
    same = [(b"x-headway-supersede", b"editor")]

    async def scene(app, service, rows):
        first = Client(app, LONG, same)
        await until(lambda: service.model.engine.load.running == 1)
        streamed = Client(app, LONG | {"stream": True}, same)
        await first.task
        assert (first.status, first.headers["x-should-retry"]) == (409, "false")
        assert json.loads(first.said)["error"]["code"] == "superseded"
        await until(lambda: streamed.said)
        last = Client(app, LONG | {"max_tokens": 3}, same)
        other = Client(app, LONG | {"max_tokens": 3})
        await asyncio.gather(streamed.task, last.task, other.task)
        assert streamed.status == 200 and last.status == other.status == 200
        *_, failure, done = [line for line in streamed.said.split(b"\n\n") if line]
        assert json.loads(failure[6:])["error"]["code"] == "superseded"
        assert done == b"data: [DONE]"

    inside(ServerConfig(), paced, scene)


def test_the_later_arrival_supersedes_even_if_it_is_tokenized_first():
    same = [(b"x-headway-supersede", b"editor")]

    async def scene(app, service, rows):
        service.model.tokenizer._worker.submit(hold.wait, 10)
        first = Client(app, {"prompt": "word " * 900, "max_tokens": 3}, same)
        await until(lambda: service.model.tokenizer._worker._work_queue.qsize())
        last = Client(app, LONG, same)
        await until(lambda: service.model.engine.load.running == 1)
        hold.set()
        await first.task
        assert (first.status, service.model.admission.open) == (409, 1)
        last.left.set()
        await last.task

    hold = threading.Event()
    inside(ServerConfig(), paced, scene)


def test_a_tenant_cancels_only_its_own_requests_by_id():
    async def scene(app, service, rows):
        runs = Client(app, LONG | {"stream": True, "n": 2}, [(b"x-request-id", b"mine")])
        await until(lambda: b"\n\n" in runs.said)
        assert runs.headers["x-request-id"] == "mine"
        id = json.loads(runs.said.split(b"\n\n")[0][6:])["id"]
        assert "mine" not in id
        assert service.model.admission.cancel("another tenant", id) == 0
        asked = Client(app, {}, path=f"/v1/requests/{id}/cancel")
        await asyncio.gather(asked.task, runs.task)
        assert json.loads(asked.said)["cancelled"] == 1
        assert b'"code":"cancelled"' in runs.said
        gone = Client(app, {}, path="/v1/requests/mine/cancel")
        await gone.task
        assert gone.status == 404

    inside(ServerConfig(), paced, scene)


def test_a_missing_or_overlong_request_id_is_replaced_by_one_that_cancels():
    async def scene(app, service, rows):
        for said in ((), [(b"x-request-id", b"x" * 257)]):
            runs = Client(app, LONG | {"stream": True}, said)
            await until(lambda runs=runs: b"\n\n" in runs.said)
            id = runs.headers["x-request-id"]
            assert id.startswith("req-") and runs.scope["state"]["request_id"] == id
            asked = Client(app, {}, path=f"/v1/requests/{id}/cancel")
            await asyncio.gather(asked.task, runs.task)
            assert json.loads(asked.said)["cancelled"] == 1

    inside(ServerConfig(), paced, scene)


def test_a_500_answer_carries_the_request_id(monkeypatch):
    with serving(engine=fake) as (url, service):
        monkeypatch.setattr(service.keys, "authenticate", None)  # calling it raises
        answer = httpx2.get(f"{url}/v1/models", headers={"X-Request-Id": "mine"})
    assert (answer.status_code, error(answer)["code"]) == (500, "fault")
    assert answer.headers["x-request-id"] == "mine"


def test_a_full_lane_says_when_to_retry():
    config = ServerConfig(lanes={"standard": {"max_waiting": 1}}, engine={"slots": 1})

    async def scene(app, service, rows):
        runs = Client(app, LONG)
        await until(lambda: service.model.engine.load.running == 1)
        waits = Client(app, LONG | {"max_tokens": 2})
        await until(lambda: service.model.engine.load.lanes["standard"].waiting == 1)
        for stream in (True, False):
            refused = Client(app, LONG | {"stream": stream})
            await refused.task
            assert refused.status == 429
            assert 1 <= int(refused.headers["retry-after"]) <= 120
            assert json.loads(refused.said)["error"]["code"] == "lane_full"
        runs.left.set()
        await asyncio.gather(runs.task, waits.task)
        assert waits.status == 200

    inside(config, paced, scene)


@pytest.mark.parametrize("stream", [True, False])
def test_an_expired_request_is_marked_as_not_to_be_retried(stream):
    async def scene(app, service, rows):
        late = Client(app, LONG | {"stream": stream}, [(b"x-headway-timeout-ms", b"0.001")])
        await late.task
        assert (late.status, late.headers["x-should-retry"]) == (408, "false")
        assert json.loads(late.said)["error"]["code"] == "deadline_exceeded"

    inside(ServerConfig(), paced, scene)


def test_a_budget_tightened_by_a_header_decides_whether_a_request_is_good():
    async def scene(app, service, rows):
        await Client(app, LONG | {"max_tokens": 9}, [(b"x-slo-tpot-ms", b"0.000001")]).task
        await Client(app, LONG | {"max_tokens": 9}).task
        assert [row.good for row in rows] == [False, True]

    inside(ServerConfig(), paced, scene)


@pytest.mark.parametrize(
    "state, code", [(EngineState.DRAINING, "draining"), (EngineState.LOADING, "loading")]
)
def test_a_loading_or_draining_server_answers_503_with_retry_after(state, code):
    with serving(engine=fake) as (url, service):
        service.model.engine.state = state
        for response in (
            httpx2.post(f"{url}/v1/completions", json={"prompt": "x"}),
            httpx2.get(f"{url}/ready"),
        ):
            assert (response.status_code, error(response)["code"]) == (503, code)
            assert int(response.headers["retry-after"]) >= 1
        assert httpx2.get(f"{url}/health").status_code == 200
        service.model.engine.state, service.model.engine.down = (
            EngineState.DOWN,
            "the engine has died",
        )
        assert error(httpx2.get(f"{url}/health"))["message"] == "the engine has died"
        assert httpx2.post(f"{url}/tokenize", json={"prompt": "x"}).status_code == 503
        service.model.engine.state = EngineState.READY
        assert httpx2.get(f"{url}/ready").status_code == 200


@pytest.fixture(scope="module")
def server():
    with serving(ServerConfig(server={"limits": {"body_bytes": 10_000}}), fake) as (url, _):
        yield url


def test_all_errors_have_the_same_form(server):
    post = f"{server}/v1/completions"
    json_type = {"content-type": "application/json"}
    for response, status in (
        (httpx2.get(post), 405),
        (httpx2.get(f"{server}/nothing"), 404),
        (httpx2.post(post, content=b"{", headers=json_type), 400),
        (httpx2.post(post, content=b"x=1", headers={"content-type": "text/plain"}), 415),
        (httpx2.post(post, json={"prompt": "x" * 10_001}), 413),
        (httpx2.post(post, content=iter([b" " * 6_000] * 2), headers=json_type), 413),
        (httpx2.post(post, json={"prompt": "x"}, headers={"x-slo-ttft-ms": "soon"}), 400),
        (httpx2.post(post, json={"prompt": "x"}, headers={"x-headway-lane": "fast"}), 400),
        (httpx2.post(f"{server}/detokenize", json={"tokens": [99_999]}), 400),
        (httpx2.post(f"{server}/tokenize", json={}), 400),
    ):
        assert response.status_code == status
        assert set(error(response)) == {"message", "type", "param", "code"}
        assert response.headers["x-request-id"].startswith("req-")
    assert httpx2.get(post).headers["allow"] == "POST"


def test_a_compressed_body_gets_415_that_names_its_encoding(server):
    post, kind = f"{server}/v1/completions", {"content-type": "application/json"}
    body = json.dumps({"prompt": [5], "max_tokens": 1}).encode()
    for encoding in ("gzip", "br"):
        headers = kind | {"content-encoding": encoding}
        answer = httpx2.post(post, content=gzip.compress(body), headers=headers)
        assert (answer.status_code, error(answer)["param"]) == (415, "content-encoding")
        assert f"'{encoding}'" in error(answer)["message"]
    plain = httpx2.post(post, content=body, headers=kind | {"content-encoding": "identity"})
    assert plain.status_code == 200


@pytest.mark.parametrize("said", [{"logit_bias": {"99999": 1}}, {"stop_token_ids": [5, 99_999]}])
def test_unknown_token_ids_are_refused_and_their_field_is_named(server, said):
    answer = httpx2.post(f"{server}/v1/completions", json={"prompt": [5]} | said)
    (field,) = said
    assert (answer.status_code, error(answer)["param"]) == (400, field)
    assert error(answer)["message"] == f"'{field}': the model has no token 99999, only 0 to 4095"


def test_min_tokens_beyond_the_context_is_refused(server):
    said = {"messages": [{"role": "user", "content": "hello"}], "min_tokens": 5_000}
    answer = httpx2.post(f"{server}/v1/chat/completions", json=said)
    assert (answer.status_code, error(answer)["code"]) == (400, "context_length_exceeded")
    assert error(answer)["message"].endswith(", and 5000 to generate were asked for")


@pytest.mark.parametrize("skip", [True, False])
def test_a_stop_string_counts_only_after_min_tokens(server, skip):
    def said(**more):
        asked = {"prompt": [5], "max_tokens": 8, "skip_special_tokens": skip, "seed": 1}
        answer = httpx2.post(f"{server}/v1/completions", json=asked | more).json()
        return answer["choices"][0]["text"], answer["usage"]["completion_tokens"]

    text, _ = said()
    assert said(stop=text[0]) == ("", 1)
    later, tokens = said(stop=text[0], min_tokens=4)
    assert later.startswith(text[0]) and tokens > 4


def test_tokenize_counts_tokens_and_detokenize_restores_the_text(server):
    said = httpx2.post(f"{server}/tokenize", json={"prompt": "hello there"}).json()
    assert said["count"] == len(said["tokens"]) and said["max_model_len"] == 1_024
    back = httpx2.post(f"{server}/detokenize", json={"tokens": said["tokens"]}).json()
    assert back == {"prompt": "hello there"}
    chat = {"messages": [{"role": "user", "content": "hello there"}]}
    assert httpx2.post(f"{server}/tokenize", json=chat).json()["count"] > said["count"]
    long = "word " * 1_900  # tokenized in a thread
    assert httpx2.post(f"{server}/tokenize", json={"prompt": long}).json()["count"] >= 1_900


def test_lanes_settings_and_metrics_can_be_read(server):
    lanes = httpx2.get(f"{server}/v1/lanes").json()
    assert [each["id"] for each in lanes["data"]] == ["interactive", "standard", "offline"]
    assert lanes["data"][0]["budget_ms"]["ttft"] == 500.0 and lanes["data"][0]["waiting"] == 0
    assert lanes["data"][0]["drain_tokens_per_second"] >= 0 and lanes["blocks"] == BLOCKS
    said = httpx2.get(f"{server}/v1/config/effective").json()
    assert said["server"]["limits"]["body_bytes"] == 10_000
    assert (said["keys"], list(said["lanes"])) == ([], ["interactive", "standard", "offline"])
    assert "process_" in httpx2.get(f"{server}/metrics").text


def test_the_model_list_accepts_a_trailing_slash(server):
    listed = httpx2.get(f"{server}/v1/models").json()
    assert listed["data"] and httpx2.get(f"{server}/v1/models/").json() == listed


def test_an_answer_names_the_lane_chosen_by_header_then_tier_then_model(server):
    def lane(headers=None, **said):
        asked = {"prompt": [5], "max_tokens": 1} | said
        return httpx2.post(f"{server}/v1/completions", json=asked, headers=headers).headers[
            "x-headway-lane"
        ]

    assert lane() == lane(service_tier="auto") == "standard"
    assert lane(model="headway-tiny@offline") == "offline"
    assert lane(model="headway-tiny@offline", service_tier="interactive") == "interactive"
    assert lane({"X-Headway-Lane": "offline"}, service_tier="interactive") == "offline"


def test_keys_are_required_and_limit_lanes_and_rates():
    key = {"name": "team", "sha256": digest("secret").hex(), "requests_per_minute": 3}
    config = ServerConfig(keys=[KeySettings(**key, lanes=["offline"], tokens_per_minute=1_000)])
    with serving(config, fake) as (url, _):
        post, asked = f"{url}/v1/completions", {"prompt": [5], "max_tokens": 1}
        assert httpx2.post(post, json=asked).status_code == 401
        mine = {"authorization": "Bearer secret"}
        other = httpx2.post(post, json=asked | {"service_tier": "standard"}, headers=mine)
        assert (other.status_code, error(other)["code"]) == (403, "lane_not_allowed")
        many = httpx2.post(post, json=asked | {"max_tokens": 1_001}, headers=mine)
        assert many.status_code == 400
        assert httpx2.post(post, json=asked, headers=mine).status_code == 200
        again = httpx2.post(post, json=asked, headers=mine)
        assert (again.status_code, error(again)["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(again.headers["retry-after"]) <= 120
        assert httpx2.get(f"{url}/v1/models").status_code == 401
        assert httpx2.get(f"{url}/health").status_code == 200


def keyed(**limits):
    """A configuration with one key, and the header that shows it."""
    key = KeySettings(name="team", sha256=digest("secret").hex(), **limits)
    return ServerConfig(keys=[key]), {"authorization": "Bearer secret"}


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize", "/detokenize"])
def test_a_keys_rate_limit_is_checked_before_the_body_is_read(path):
    config, mine = keyed(requests_per_minute=2)
    mine["content-type"] = "application/json"
    with serving(config, fake) as (url, _):
        for _ in range(2):
            wrong = httpx2.post(url + path, content=b"{", headers=mine)
            assert wrong.status_code == 400, "that was a request, too"
        refused = httpx2.post(url + path, content=b"{", headers=mine)
        assert (refused.status_code, error(refused)["code"]) == (429, "rate_limit_exceeded")


@pytest.mark.parametrize(
    "path, asked", [("/tokenize", {"prompt": "hello " * 50}), ("/detokenize", {"tokens": [5] * 50})]
)
def test_tokenize_and_detokenize_count_against_tokens_per_minute(path, asked):
    config, mine = keyed(tokens_per_minute=40)
    with serving(config, fake) as (url, _):
        assert httpx2.post(url + path, json=asked, headers=mine).status_code == 200
        refused = httpx2.post(url + path, json=asked, headers=mine)
        assert (refused.status_code, error(refused)["code"]) == (429, "rate_limit_exceeded")
        assert int(refused.headers["retry-after"]) > 10


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_beyond_a_keys_concurrent_limit_is_refused(stream):
    config, mine = keyed(concurrent=1)
    mine = [(name.encode(), value.encode()) for name, value in mine.items()]

    async def scene(app, service, rows):
        for ends in ("left", "done"):
            runs = Client(app, LONG | {"stream": stream}, mine)
            await until(lambda: service.model.engine.load.running == 1)
            for path in ("/v1/completions", "/tokenize"):
                refused = Client(app, "not read", mine, path)
                await refused.task
                assert refused.status == 429 and int(refused.headers["retry-after"]) >= 1
                code = json.loads(refused.said)["error"]["code"]
                assert code == "concurrency_limit_exceeded"
            if ends == "left":
                runs.left.set()
            await runs.task
            await until(lambda: service.model.engine.load.running == 0)
        for _ in range(2):
            wrong = Client(app, "not an object", mine)
            await wrong.task
            assert wrong.status == 400, "it had its place and gave it back"

    inside(config, paced, scene)


def test_an_answer_counts_as_concurrent_until_all_of_it_is_sent():
    config, mine = keyed(concurrent=1)
    mine = [(name.encode(), value.encode()) for name, value in mine.items()]

    async def scene(app, service, rows):
        slow = Client(app, LONG | {"max_tokens": 3, "logprobs": 1}, mine)
        slow.reads.clear()
        await until(lambda: slow.said)
        refused = Client(app, LONG, mine)
        await refused.task
        assert refused.status == 429
        slow.reads.set()
        await slow.task
        next_one = Client(app, LONG | {"max_tokens": 3}, mine)
        await next_one.task
        assert next_one.status == 200

    inside(config, paced, scene)


def test_a_chat_without_max_tokens_is_charged_a_minutes_tokens_and_then_its_usage():
    key = {"name": "team", "sha256": digest("secret").hex(), "tokens_per_minute": 400}
    with serving(ServerConfig(keys=[KeySettings(**key)]), fake) as (url, service):
        mine = {"authorization": "Bearer secret"}
        asked = {"messages": [{"role": "user", "content": "Say more."}], "ignore_eos": True}
        post = f"{url}/v1/chat/completions"
        answer = httpx2.post(post, json=asked, headers=mine, timeout=60)
        assert answer.status_code == 200, "the context is more than a minute's worth"
        assert answer.json()["usage"]["total_tokens"] == service.model.engine.load.capacity > 400
        again = httpx2.post(post, json=asked | {"max_tokens": 1}, headers=mine)
        assert again.status_code == 429 and int(again.headers["retry-after"]) > 60, (
            "the rest is owed"
        )


def test_a_requests_row_names_the_tenant_of_its_key():
    keys = [KeySettings(name=name, sha256=digest(name).hex()) for name in ("acme", "bell")]
    config = ServerConfig(keys=keys)

    async def scene(app, service, rows):
        for name in ("acme", "bell", "acme"):
            header = [(b"authorization", f"Bearer {name}".encode())]
            client = Client(app, LONG | {"max_tokens": 3}, header)
            await client.task
            assert client.status == 200
        assert [row.tenant for row in rows] == ["acme", "bell", "acme"]

    inside(config, paced, scene)


def test_effective_settings_show_a_caller_only_its_own_key_and_lanes():
    """Callers with a key see their own entry and lanes, but no key, whole hash or path."""
    keys = [
        KeySettings(name="ours", sha256=digest("secret").hex(), tenant="shop", lanes=["offline"]),
        KeySettings(name="theirs", sha256=digest("other").hex(), requests_per_minute=7),
    ]
    models = [{"path": str(EMBEDDED), "aliases": ["mine"]}]
    with serving(ServerConfig(keys=keys, models=models), fake) as (url, _):
        asked = f"{url}/v1/config/effective"
        for header in ({}, {"authorization": "Bearer wrong"}):
            assert httpx2.get(asked, headers=header).status_code == 401
        answer = httpx2.get(asked, headers={"authorization": "Bearer secret"})
    said = answer.json()
    (key,) = said["keys"]
    assert (key["name"], key["tenant"], key["default_lane"]) == ("ours", "shop", "offline")
    assert key["sha256"] == keys[0].sha256[:8] + "..."
    assert list(said["lanes"]) == key["lanes"] == ["offline"]
    assert said["models"][0]["aliases"] == ["mine"] and "journal" not in said["engine"]
    for secret in ("secret", "theirs", str(EMBEDDED.parent), *[each.sha256 for each in keys]):
        assert secret not in answer.text


@pytest.mark.parametrize("stream", [False, True])
def test_the_cost_of_a_call_follows_from_its_usage_and_the_prices(stream):
    prices = {"per_million_prompt": 3, "per_million_cached": 1, "per_million_answer": 10}
    config = ServerConfig(prices=prices | {"per_hour": 36})
    asked = LONG | {"prompt": list(range(5, 45)), "max_tokens": 6, "n": 2}
    if stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}

    async def scene(app, service, rows):
        for cached in (0, 32):  # the first two blocks
            client = Client(app, asked)
            await client.task
            said = json.loads(client.said.split(b"\n\n")[-3][6:] if stream else client.said)
            assert said["usage"]["completion_tokens"] == 12
            assert said["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
            charged = 3 * (40 - cached) + cached + 10 * 12
            assert said["metrics"]["cost"] == pytest.approx(charged / 1e6)
            spent = sum(row.nanoseconds for row in rows[-2:])
            assert said["metrics"]["machine_cost"] == pytest.approx(36 * spent / 3.6e12, abs=1e-12)

    inside(config, paced, scene)


def test_a_cost_without_a_price_is_not_reported():
    async def scene(app, service, rows):
        client = Client(app, LONG | {"max_tokens": 1})
        await client.task
        assert not {"cost", "machine_cost"} & json.loads(client.said)["metrics"].keys()

    inside(ServerConfig(), paced, scene)
