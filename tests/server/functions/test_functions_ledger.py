"""Functions with a ledger: a row for each item, explained, and sums that are exact."""

import json
import socket
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from headway.cli import main
from headway.core.lane import Lane
from headway.core.ledger import StepRow
from headway.core.load import LaneLoad, Load
from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.server.config.durations import SECOND
from headway.server.config.sections.keys import digest
from headway.server.config.sections.prices import PriceSettings
from headway.server.config.tenant import Tenant
from headway.server.engine.handle import EngineState
from headway.server.functions.ledger.function_book import FunctionBook
from headway.server.ledger.explanation import OF_ITEMS, WORDS
from headway.server.observe.access import AccessLog
from headway.server.observe.logs import logger
from headway.store.ledger.flush import Account
from headway.store.ledger.ledger_tables import MINUTES, OUTCOMES
from tests.server.functions import functions_to_serve
from tests.server.functions.served import MODULE, serving
from tests.server.ledger.kept import exact, stored
from tests.server.running_server import until

LABELS = {
    "x-headway-prompt-version": "v7",
    "x-headway-workflow": "order-1",
    "x-headway-attempt": "2",
}


@pytest.fixture(autouse=True)
def nothing_is_let_go():
    """Take the permits that other tests have left over."""
    while functions_to_serve.HELD.acquire(blocking=False):
        pass


def config_of(tmp_path, **more):
    kept = {"url": str(tmp_path / "ledger.db"), "flush": "50ms"}
    return ServerConfig(ledger=kept, prices={"per_hour": 3.6}, **more)


def post(url, body, **headers):
    return httpx2.post(url, json=body, headers=headers, timeout=60)


def explained(url, id):
    found = httpx2.get(f"{url.partition('/v1')[0]}/v1/requests/{id}", timeout=60).json()
    for item in found["choices"]:
        assert sum(each["ns"] for each in item["stages"]) == item["wall_ns"]
        assert all(each["what"] for each in item["stages"])
    return found


def test_each_item_has_a_row_with_its_callers_labels(tmp_path):
    with serving("shout", config_of(tmp_path)) as (url, _):
        named = {"x-request-id": "one", "x-headway-lane": "slow", **LABELS}
        assert post(url, {"text": "a"}, **named).status_code == 200
        items = [{"text": "b"}, {"text": "bad"}, {"text": "c"}]
        assert post(f"{url}/batch", items, **{"x-request-id": "three"}).status_code == 200
        until(lambda: len(stored(tmp_path)) == 4)
        one, three = explained(url, "one"), explained(url, "three")
    rows = {row["id"]: row for row in stored(tmp_path)}
    first = rows[one["id"]]
    assert (first["prompt_version"], first["workflow"], first["attempt"]) == ("v7", "order-1", 2)
    assert (first["lane"], first["model"], first["operation"]) == ("slow", "shout", "function")
    assert (first["finish"], first["good"], first["code"]) == ("computed", True, "")
    assert (first["fresh_tokens"], first["output_tokens"], first["charged"]) == (1, 0, 0)
    assert first["device_money"] == first["device_ns"] // 1_000 > 0, "3.6 an hour"
    assert [each["finish"] for each in three["choices"]] == ["computed", "error", "computed"]
    failed = rows[f"{three['id']}-1"]
    assert (failed["code"], failed["good"]) == ("function_error", False)
    assert {rows[f"{three['id']}-{at}"]["lane"] for at in range(3)} == {"fast"}
    assert exact(tmp_path)


def test_the_items_of_a_list_and_no_others_have_rows(tmp_path):
    """An item whose result cannot be encoded has a row with its error. An empty list has no row."""
    with serving("strange_at_seven", config_of(tmp_path)) as (url, _):
        assert post(f"{url}/batch", []).json() == {"results": []}
        assert post(f"{url}/batch", [6, 7]).status_code == 200
        until(lambda: stored(tmp_path))
    found = sorted((row["code"], row["good"]) for row in stored(tmp_path))
    assert found == [("", True), ("function_error", False)]
    assert exact(tmp_path)


def test_all_device_time_is_in_rows_or_idle(tmp_path):
    with serving("shout", config_of(tmp_path)) as (url, _), ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda i: post(url, {"text": f"t{i}"}).status_code, range(200)))
    assert said == [200] * 200
    rows, minutes = stored(tmp_path), stored(tmp_path, MINUTES)
    spent, steps = Counter(), sum(each["steps"] for each in minutes if each["account"] == "open")
    for each in minutes:
        spent[each["account"]] += each["nanoseconds"]
    assert spent["requests"] == sum(row["device_ns"] for row in rows) > 0
    assert spent["open"] == 0 and spent["idle"] > 0 and spent["unrecorded"] == 0
    assert len(rows) == 200 and 25 <= steps <= 200
    assert exact(tmp_path)


def test_each_refused_call_has_a_row(tmp_path):
    keys = [{"name": "ci", "sha256": digest("ci").hex(), "requests_per_minute": 3}]
    with serving("held", config_of(tmp_path, keys=keys)) as (url, service):
        named = {"authorization": "Bearer ci"}
        with ThreadPoolExecutor(2) as pool:
            begun = pool.submit(post, f"{url}/batch", [1, 2, 3, 4], **named)
            until(lambda: service.batcher.load.running)
            line = pool.submit(post, f"{url}/batch", [1] * 8, **named)
            until(lambda: service.batcher.load.running and service.open == 2)
            wrong = post(url, "{", **named | {"x-headway-attempt": "many"})
            assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_label")
            assert post(url, 1, **named, **{"x-headway-lane": "none"}).status_code == 400
            limited = post(url, 1, **named)
            assert limited.json()["error"]["code"] == "rate_limit_exceeded"
            for _ in range(12):
                functions_to_serve.HELD.release()
            assert begun.result().status_code == line.result().status_code == 200
        until(lambda: len(stored(tmp_path)) == 15)
    found = Counter((row["finish"], row["code"]) for row in stored(tmp_path))
    refused = ("invalid_label", "no_such_lane", "rate_limit_exceeded")
    assert found == {("computed", ""): 12, **{("refused", code): 1 for code in refused}}
    assert {row["tenant"] for row in stored(tmp_path)} == {"ci"} and exact(tmp_path)


@pytest.mark.parametrize("lane", ["none", "x" * 300])
def test_the_row_of_a_refusal_does_not_name_an_unknown_lane(tmp_path, lane):
    """A name of 256 characters would not fit into PostgreSQL's columns."""
    with serving("shout", config_of(tmp_path)) as (url, _):
        refused = post(url, {"text": "a"}, **{"x-headway-lane": lane})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "no_such_lane")
        until(lambda: stored(tmp_path))
    (row,) = stored(tmp_path)
    assert (row["lane"], row["code"]) == ("", "no_such_lane")
    assert lane not in {each["lane"] for each in stored(tmp_path, MINUTES)} and exact(tmp_path)


def test_an_abandoned_items_row_has_its_device_time(tmp_path):
    with serving("held", config_of(tmp_path)) as (url, service):
        _, _, address, path = url.split("/", 3)
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as client:
            head = f"POST /{path} HTTP/1.1\r\nHost: {address}\r\nX-Request-Id: gone\r\n"
            body = "Content-Type: application/json\r\nContent-Length: 1\r\n\r\n1"
            client.sendall(f"{head}{body}".encode())
            until(lambda: service.open)
            until(lambda: service.batcher.load.running)
        until(lambda: not service.open)
        functions_to_serve.HELD.release()
        until(lambda: stored(tmp_path))
        (item,) = explained(url, "gone")["choices"]
    (row,) = stored(tmp_path)
    assert (row["code"], row["good"]) == ("client_gone", False)
    assert item["device_ns"] == row["device_ns"] > 0, "the call had begun"
    assert exact(tmp_path)


def test_a_stream_has_one_row(tmp_path):
    with serving("count", config_of(tmp_path)) as (url, _):
        assert post(url, 3, **{"x-request-id": "three"}).text.endswith("[DONE]\n\n")
        assert "seven is too many" in post(url, 9, **{"x-request-id": "nine"}).text
        until(lambda: len(stored(tmp_path)) == 2)
        (item,) = explained(url, "three")["choices"]
    assert {each["stage"] for each in item["stages"]} >= {"prefill.own", "decode.own"}
    rows = {row["request_id"]: row for row in stored(tmp_path)}
    assert (rows["three"]["finish"], rows["three"]["output_tokens"]) == ("stop", 4)
    assert (rows["nine"]["finish"], rows["nine"]["code"]) == ("error", "function_error")
    assert exact(tmp_path)


@pytest.mark.parametrize(
    "name, why", [("count", "seven is too many"), ("stranger", "no application/json")]
)
def test_a_stream_that_fails_after_its_first_piece_has_the_errors_code(tmp_path, name, why):
    lines = []
    log = logger("info", lines.append)
    with serving(name, config_of(tmp_path), around=lambda app: AccessLog(app, log)) as (url, _):
        *_, error, done, end = post(url, 9).text.split("\n\n")
        until(lambda: stored(tmp_path))
    assert why in error and (done, end) == ("data: [DONE]", "")
    assert (lines[0]["status"], lines[0]["code"]) == (200, "function_error")
    (row,) = stored(tmp_path)
    assert (row["code"], row["good"]) == ("function_error", False)


def test_a_client_that_leaves_a_stream_is_named_as_its_end(tmp_path):
    lines = []
    log, config = logger("info", lines.append), config_of(tmp_path)
    with serving("pausing", config, around=lambda app: AccessLog(app, log)) as (url, _):
        with httpx2.stream("POST", url, json=3, timeout=60) as answer:
            assert next(answer.iter_lines()) == "data: 3"
        until(lambda: lines)
        functions_to_serve.HELD.release()
        until(lambda: stored(tmp_path))
    (row,) = stored(tmp_path)
    assert (lines[0]["status"], lines[0]["code"]) == (200, "client_gone")
    assert (row["code"], row["good"]) == ("client_gone", False)


def test_outcomes_of_function_calls_are_kept_and_the_live_page_explains_them(tmp_path):
    with serving("shout", config_of(tmp_path)) as (url, _):
        base = url.partition("/v1")[0]
        assert post(url, {"text": "a"}, **LABELS, **{"x-request-id": "one"}).status_code == 200
        until(lambda: stored(tmp_path))
        for body in ({"request": "one"}, {"workflow": "order-1"}):
            told = post(f"{base}/v1/outcomes", body | {"label": "accepted"})
            assert told.status_code == 200, told.text
        unknown = post(f"{base}/v1/outcomes", {"request": "two", "label": "accepted"})
        assert unknown.status_code == 404
        page = httpx2.get(f"{base}/dashboard", timeout=60).text
        metrics = httpx2.get(f"{base}/metrics", timeout=60).text
    assert len(stored(tmp_path, OUTCOMES)) == 2
    assert "the function was called with it" in page
    assert 'headway_ledger_rows_total{outcome="written"} 1.0' in metrics


def test_a_call_over_several_minutes_is_not_idle_time(monkeypatch):
    now = 5_000 * 60 * SECOND
    monkeypatch.setattr(clock, "now", lambda: now)
    monkeypatch.setattr(clock, "epoch", lambda: 0)
    book = FunctionBook("work", lambda: EngineState.READY, PriceSettings(), 9)
    book.ready()
    call = book.begin({}, Tenant("ann", "ann", frozenset(), "", ""))
    book.asked(call, "fast")
    began, spent = now, Counter()
    for _ in range(4):
        now += 60 * SECOND
        spent += nanoseconds_of(book.take(1))
    step = StepRow(1, began, now - began, 0, 1, 1, 0, 0, 0, 1, 0, 9)
    book.measured([step], Load(lanes={"fast": LaneLoad(Lane("fast"), 0, 0, batch=1)}))
    assert not spent and nanoseconds_of(book.take(2)) == {
        (minute, Account.OPEN): 60 * SECOND for minute in range(5_000, 5_004)
    }


def nanoseconds_of(flush):
    return Counter(
        {
            (key.minute, key.account): part.nanoseconds
            for key, part in flush.minutes.items()
            if part.nanoseconds
        }
    )


def test_items_have_the_same_stages_as_requests():
    assert OF_ITEMS.keys() == WORDS.keys()


@pytest.mark.parametrize(
    "prices, said",
    [
        ({"per_million_answer": 1}, "of the prices, only per_hour applies"),
        ({"per_hour": 1}, "is kept in a ledger, and none is"),
    ],
)
def test_prices_that_do_not_apply_are_refused(tmp_path, capsys, monkeypatch, prices, said):
    path = tmp_path / "headway.yaml"
    path.write_text(json.dumps({"prices": prices}))
    monkeypatch.setattr(sys, "argv", ["headway", "serve", f"{MODULE}:shout", "--config", str(path)])
    with pytest.raises(SystemExit):
        main()
    assert said in " ".join(capsys.readouterr().err.split())


def test_device_time_whose_items_are_never_reported_is_unrecorded():
    book = FunctionBook("work", lambda: EngineState.DRAINING, PriceSettings(), 9)
    book.ready()
    call = book.begin({}, Tenant("ann", "ann", frozenset(), "", ""))
    book.asked(call, "fast")
    began, load = clock.now(), Load(lanes={"fast": LaneLoad(Lane("fast"), 0, 0, batch=1)})
    book.measured([StepRow(1, began, 5_000, 0, 1, 1, 0, 0, 0, 1, 0, 9)], load)
    book.left(call)
    book.close()
    book.delivered(call)  # the call's answer was still being sent
    flush = book.take(1)
    (row,) = flush.requests
    assert (row["finish"], row["device_ns"], flush.open_ns) == ("error", 0, 0)
    assert sum(json.loads(row["stages"]).values()) == row["wall_ns"]
    spent = Counter()
    for (_, account), each in nanoseconds_of(flush).items():
        spent[account] += each
    assert spent[Account.UNRECORDED] >= 5_000 and spent[Account.OPEN] == 0
