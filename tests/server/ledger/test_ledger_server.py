"""The ledger of a running server: rows, explanations, outcomes, and a database that is away."""

import json
import os
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import quote

import httpx2
import openai
import psycopg
import pytest
from sqlalchemy import select

from headway.core.accounts.rules import Rule
from headway.errors import DrainingError
from headway.executor.fake import FakeExecutor
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import KeySettings, digest
from headway.server.engine.handle import EngineState
from headway.server.ledger.book import Book
from headway.server.ledger.explanation import WORDS
from headway.server.ledger.writer import STUBBORN
from headway.server.protocol.problem import Problem
from headway.store.database import Database, StoreError
from headway.store.ledger.flush import MINUTE
from headway.store.ledger.ledger_store import LedgerStore, Writer
from headway.store.ledger.ledger_tables import MINUTES, OUTCOMES, REQUESTS, WRITERS
from tests.postgresql import postgresql
from tests.server.http.raw_client import HEAD, Hostile
from tests.server.ledger.kept import exact, stored
from tests.server.running_server import BLOCK, Local, Permitted, fake, scheduler, serving, until

PATH = "/v1/completions"
DISCONNECT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname IS NOT NULL AND pid <> pg_backend_pid()"
)
PRICES = {"per_hour": 3.6, "per_million_prompt": 1.0, "per_million_answer": 2.0}
BODY = {"prompt": "def f(", "max_tokens": 4, "temperature": 0, "ignore_eos": True}


def config_of(tmp_path, keys=(), lanes=None, **ledger):
    kept = {"url": str(tmp_path / "ledger.db"), "flush": "50ms", **ledger}
    made = [{"name": name, "sha256": digest(name).hex()} for name in keys]
    more = {"lanes": lanes} if lanes else {}
    return ServerConfig(ledger=kept, keys=made, prices=PRICES, **more)


def client_of(url, key="x"):
    return httpx2.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=30)


def stages_of(explained):
    (choice,) = explained["choices"]
    stages = {each["stage"]: each["ns"] for each in choice["stages"]}
    assert sum(stages.values()) == choice["wall_ns"]
    return stages


def test_each_request_has_a_row_with_its_callers_labels(tmp_path):
    labels = {
        "x-headway-prompt-version": "v7",
        "x-headway-workflow": "order-1",
        "x-headway-attempt": "2",
    }
    with (
        serving(config_of(tmp_path, keys=["ci"]), fake) as (url, front),
        openai.OpenAI(base_url=f"{url}/v1", api_key="ci", max_retries=0) as client,
    ):
        asked = {"model": "headway-tiny", "extra_headers": labels}
        asked["extra_body"] = {"ignore_eos": True}  # a sampled EOS may end an answer
        done = client.completions.create(prompt="def f(", max_tokens=5, n=2, **asked)
        stream = client.completions.create(prompt="x", max_tokens=3, stream=True, **asked)
        streamed = {each.id for each in stream}.pop()
        until(lambda: len(stored(tmp_path)) == 3)
    rows = {row["id"]: row for row in stored(tmp_path)}
    first, second = rows[f"{done.id}-0"], rows[f"{done.id}-1"]
    for row in rows.values():
        assert (row["prompt_version"], row["workflow"], row["attempt"]) == ("v7", "order-1", 2)
        assert (row["tenant"], row["key"], row["lane"]) == ("ci", "ci", "standard")
        assert row["good"] and row["finish"] == "length" and row["device_ns"] > 0
        assert sum(json.loads(row["stages"]).values()) == row["wall_ns"]
    prompt = done.usage.prompt_tokens
    assert first["fresh_tokens"] == prompt and first["output_tokens"] == 5
    assert first["charged"] == 1_000 * prompt + 2_000 * 5, "the prompt is charged once"
    assert second["charged"] == 2_000 * 5
    assert f"{streamed}-0" in rows
    assert front.ledger.writers[0].written == 3 and exact(tmp_path)
    texts = [value for row in rows.values() for value in row.values() if isinstance(value, str)]
    assert not any("f(" in text for text in texts), "no prompt is kept"


@pytest.mark.parametrize(
    "header, value",
    [
        ("x-headway-workflow", "a b"),
        ("x-headway-prompt-version", "v" * 129),
        ("x-headway-attempt", "-1"),
        ("x-headway-attempt", "0"),
        ("x-headway-attempt", "1000001"),
    ],
)
def test_an_invalid_label_is_refused(tmp_path, header, value):
    with serving(config_of(tmp_path), fake) as (url, _), client_of(url) as client:
        answer = client.post(PATH, json=BODY, headers={header: value})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_label"


def test_a_request_is_explained_while_it_waits_and_afterwards(tmp_path):
    lanes = {"chat": {"slots": {"most": 1}}}
    permitted = Permitted()
    with serving(config_of(tmp_path, lanes=lanes), permitted.engine) as (url, front):
        answers = []

        def ask(id):
            with client_of(url) as client:
                answers.append(client.post(PATH, json=BODY, headers={"x-request-id": id}).json())

        threads = [threading.Thread(target=ask, args=(each,)) for each in ("one", "two")]
        threads[0].start()
        until(lambda: permitted.asked == 1)
        threads[1].start()
        until(lambda: front.model.admission.open == 2)
        with client_of(url) as client:
            open = client.get("/v1/requests/two").json()
            assert open["status"] == "unanswered" and open["lane"] == "chat"
            computed = client.get("/v1/requests/one").json()
            assert computed["status"] == "unanswered", "its prompt is being computed"
            permitted.permits.release(1_000)
            for each in threads:
                each.join(30)
            found = {id: client.get(f"/v1/requests/{id}").json() for id in ("one", "two")}
            by_id = client.get(f"/v1/requests/{found['two']['id']}").json()
            assert by_id == found["two"]
            assert client.get("/v1/requests/three").status_code == 404
    one, two = stages_of(found["one"]), stages_of(found["two"])
    assert "queue.lane" in two and "queue.lane" not in one
    assert two["queue.lane"] > one["decode.own"] // 2, "it waited for the other's steps"
    assert {"body", "tokenizing", "inbox", "prefill.own", "sending"} <= set(one) & set(two)
    (choice,) = found["two"]["choices"]
    (ran,) = choice["ran_before"]
    assert ran["lane"] == "chat" and ran["rows"] >= 3
    assert choice["cost"]["charged"] > 0 and choice["tokens"]["output"] == 4
    assert open["promised_ms"] == choice["promised_ms"] == {"first": None, "end": None}


@pytest.mark.parametrize("id", ["q" * 255, "svc/1", "a/cancel/b", "caf\xe9 7"])
def test_every_accepted_request_id_can_be_looked_up_and_cancelled(tmp_path, id):
    permitted, path = Permitted(), f"/v1/requests/{quote(id, safe='')}"
    headers = [("x-request-id", id.encode("latin-1"))]
    with serving(config_of(tmp_path), permitted.engine) as (url, front), client_of(url) as client:
        asking = {"args": (PATH,), "kwargs": {"json": BODY, "headers": headers}}
        running = threading.Thread(target=client.post, **asking)
        running.start()
        until(lambda: permitted.asked == 1)
        with client_of(url) as other:
            assert other.get(path).json()["request_id"] == id
            assert other.post(f"{path}/cancel").json()["id"] == id
            running.join(30)
            permitted.permits.release(1_000)
            until(lambda: len(stored(tmp_path)) == 1)
            front.ledger.books.all[0]._recent._calls.clear()
            assert other.get(path).json()["request_id"] == id, "from the store"
            given = {"x-request-id": "q" * 256}
            assert other.post(PATH, json=BODY, headers=given).headers["x-request-id"][:4] == "req-"


def test_an_id_with_a_nul_is_answered_with_404():
    with (
        postgresql() as ledger,
        serving(ServerConfig(ledger={"url": ledger}), fake) as (url, _),
        client_of(url) as client,
    ):
        assert client.get("/v1/requests/a%00b").status_code == 404
        for kind in ("request", "workflow"):
            answer = client.post("/v1/outcomes", json={kind: "a\0b", "label": "good"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, f"no_such_{kind}")


def test_a_server_closes_the_writer_of_a_dead_server_with_the_same_process_id():
    """In a container every server is process 1."""
    with postgresql() as where:
        database, host = Database(where), socket.gethostname()
        LedgerStore(database).begin(Writer("dead", host, os.getpid(), 0, 0), 2**62)
        with serving(ServerConfig(ledger={"url": where}), fake), database.begin() as connection:
            wanted = select(WRITERS.c.closed).where(WRITERS.c.id == "dead")
            assert connection.execute(wanted).scalar_one()
        database.close()


def test_the_stage_of_every_rule_has_a_description():
    assert {rule.stage for rule in Rule} <= set(WORDS)


def test_requests_are_explained_to_their_own_tenant_alone(tmp_path):
    with serving(config_of(tmp_path, keys=["acme", "bell"]), fake) as (url, front):
        mine, theirs = client_of(url, "acme"), client_of(url, "bell")
        with mine, theirs:
            id = mine.post(PATH, json=BODY).json()["id"]
            until(lambda: mine.get(f"/v1/requests/{id}").json()["status"] == "ended")
            assert theirs.get(f"/v1/requests/{id}").status_code == 404
            until(lambda: len(stored(tmp_path)) == 1)
            front.ledger.books.all[0]._recent._calls.clear()
            kept = mine.get(f"/v1/requests/{id}").json()
            assert kept["id"] == id and stages_of(kept)["decode.own"] > 0
            assert theirs.get(f"/v1/requests/{id}").status_code == 404
            for client, status in ((theirs, 404), (mine, 200), (mine, 200)):
                outcome = {"request": id, "label": "resolved", "value": 2.5}
                assert client.post("/v1/outcomes", json=outcome).status_code == status
            both = {"request": id, "workflow": "w", "label": "resolved"}
            assert mine.post("/v1/outcomes", json=both).status_code == 400
            bad = {"request": id, "label": "Not A Label"}
            assert mine.post("/v1/outcomes", json=bad).status_code == 400
    (outcome,) = stored(tmp_path, OUTCOMES)
    assert (outcome["tenant"], outcome["subject"]) == ("acme", id)
    assert (outcome["label"], outcome["value"]) == ("resolved", 2_500_000)


def test_without_a_ledger_requests_are_explained_and_outcomes_get_404(tmp_path):
    with serving(ServerConfig(), fake) as (url, _), client_of(url) as client:
        id = client.post(PATH, json=BODY).json()["id"]
        until(lambda: client.get(f"/v1/requests/{id}").json()["status"] == "ended")
        assert client.post("/v1/outcomes", json={"request": id, "label": "a"}).status_code == 404


def test_refused_cancelled_and_abandoned_requests_have_rows_too(tmp_path):
    permitted, key = Permitted(), {"name": "ci", "sha256": digest("ci").hex()}
    config = config_of(tmp_path).model_copy(
        update={"keys": (KeySettings(**key, tokens_per_minute=60),)}
    )
    with serving(config, permitted.engine) as (url, front), client_of(url, "ci") as client:
        asked = json.dumps(BODY).encode()
        head = HEAD + b"Authorization: Bearer ci\r\nContent-Length: %d\r\n\r\n" % len(asked)
        leaving = Hostile(url).say(head, asked)
        until(lambda: permitted.asked == 1)
        leaving.close()
        asking = {"args": (PATH,), "kwargs": {"json": BODY, "headers": {"x-request-id": "mine"}}}
        waiting = threading.Thread(target=client.post, **asking)
        waiting.start()
        until(lambda: front.model.admission.open == 1)
        with client_of(url, "ci") as other:
            much = BODY | {"max_tokens": 55}
            refused = other.post(PATH, json=much, headers={"x-request-id": "no"})
            assert refused.json()["error"]["code"] == "rate_limit_exceeded"
            told = other.get("/v1/requests/no").json()
            assert told["choices"][0]["finish"] == "refused" and stages_of(told)["door"] > 0
            assert other.post("/v1/requests/mine/cancel").status_code == 200
        permitted.permits.release(1_000)
        waiting.join(30)
        until(lambda: len(stored(tmp_path)) == 3)
    found = {(row["finish"], row["code"]) for row in stored(tmp_path)}
    assert found == {
        ("refused", "rate_limit_exceeded"),
        ("cancelled", "cancelled"),
        ("cancelled", "client_gone"),
    }
    assert exact(tmp_path)


@contextmanager
def running(tmp_path):
    """Gives a front whose one request has had its first step, and a function that lets the request
    end and returns its status."""
    permitted = Permitted()
    with (
        serving(config_of(tmp_path), permitted.engine) as (url, front),
        client_of(url) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(client.post, PATH, json=BODY)
        permitted.permits.release(1)
        until(lambda: permitted.asked == 2)

        def ends():
            permitted.permits.release(1_000)
            return asked.result(30).status_code

        yield front, ends


def test_a_running_requests_device_time_stays_open_over_many_flushes(tmp_path):
    with running(tmp_path) as (front, ends):
        (writer,) = front.ledger.writers
        number = writer._number
        until(lambda: writer._number > number + 3)
        spent = Counter()
        for row in stored(tmp_path, MINUTES):
            spent[row["account"]] += row["nanoseconds"]
        assert spent["open"] > 0 and not spent["unrecorded"]
        assert ends() == 200
    assert exact(tmp_path)


def test_a_request_cut_short_by_a_drain_keeps_its_device_time(tmp_path):
    """The engine still reports on the request after its caller was told to ask another server."""
    with running(tmp_path) as (front, ends):
        (call,) = front.model.admission._calls.values()
        front.model.engine.loop.call_soon_threadsafe(call.tell, DrainingError("closing"))
        until(lambda: not front.model.admission._calls)  # the engine has been told to cancel it
        assert ends() == 503
        until(lambda: stored(tmp_path))
    (row,) = stored(tmp_path)
    assert (row["finish"], row["code"]) == ("cancelled", "draining") and row["device_ns"] > 0
    assert exact(tmp_path)


def test_a_call_refused_at_the_door_has_a_row_for_each_of_its_choices(tmp_path, monkeypatch):
    def full(*given):
        raise Problem(429, "the lane is full", code="lane_full")

    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        monkeypatch.setattr(front.model.admission, "check_room", full)
        asked = BODY | {"prompt": ["a", "b"], "n": 2}
        assert client.post(PATH, json=asked, headers={"x-request-id": "no"}).status_code == 429
        told = client.get("/v1/requests/no").json()
        said = client.get("/metrics").text
        until(lambda: len(stored(tmp_path)) == 4)
    rows = stored(tmp_path)
    assert {row["id"] for row in rows} == {each["id"] for each in told["choices"]}
    assert {(row["call"], row["code"]) for row in rows} == {(told["id"], "lane_full")}
    assert 'outcome="refused"} 4.0' in said


def test_a_request_that_ends_during_tokenizing_ends_alike_in_rows_and_metrics(tmp_path):
    """One request waits for the tokenizer until its deadline; another is cancelled as it waits."""
    free, asked = threading.Event(), BODY | {"prompt": "word " * 900}
    with (
        serving(config_of(tmp_path), fake) as (url, front),
        client_of(url) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        front.model.tokenizer._worker.submit(free.wait, 60)
        late = {"x-request-id": "late", "x-headway-timeout-ms": "20"}
        assert client.post(PATH, json=asked, headers=late).status_code == 408
        called_off = pool.submit(
            httpx2.post, url + PATH, json=asked, headers={"x-request-id": "no"}
        )
        until(lambda: client.post("/v1/requests/no/cancel").status_code == 200)
        assert called_off.result().status_code == 409
        free.set()
        scraped = client.get("/metrics").text
        until(lambda: len(stored(tmp_path)) == 2)
    found = {(row["finish"], row["code"], *json.loads(row["stages"])) for row in stored(tmp_path)}
    assert found == {
        ("expired", "deadline_exceeded", "door"),
        ("cancelled", "cancelled", "door"),
    }
    assert [f'outcome="{each}"}} 1.0' in scraped for each in ("expired", "cancelled")] == [True] * 2
    assert exact(tmp_path)


class Broken(FakeExecutor):
    """The engine's thread ends in the fourth step."""

    def submit(self, batch):
        if batch.step == 4:
            raise SystemExit("no device")
        return super().submit(batch)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_request_lost_with_its_engine_has_as_many_tokens_as_it_was_sent(tmp_path):
    def broken(config):
        return Local(scheduler(config), Broken(512, BLOCK))

    with serving(config_of(tmp_path), broken) as (url, _), client_of(url) as client:
        answer = client.post(PATH, json=BODY | {"max_tokens": 50, "stream": True}).text
        assert "the engine is down: no device" in answer
    (row,) = stored(tmp_path)
    assert (row["finish"], row["output_tokens"], row["charged"]) == ("error", 3, 0)


def loading(config):
    """An engine that is not ready yet."""
    engine = fake(config)
    engine.state = EngineState.LOADING
    return engine


@pytest.mark.parametrize("gets_ready", [True, False])
def test_calls_refused_while_the_model_loads_have_rows(tmp_path, monkeypatch, gets_ready):
    with monkeypatch.context() as patched:
        patched.setattr(Book, "ready", lambda book: None)
        with serving(config_of(tmp_path), loading) as (url, front), client_of(url) as client:
            assert [client.post(PATH, json=BODY).status_code for _ in range(2)] == [503, 503]
            until(lambda: front.ledger.writers[0].written == 2)
            assert len(stored(tmp_path)) == 2 and exact(tmp_path)
            if gets_ready:
                patched.undo()
                front.model.engine.state = EngineState.READY
                front.model.engine.loop.call_soon_threadsafe(front.model.engine_ready)
                assert client.post(PATH, json=BODY).status_code == 200
            assert client.post(PATH, json=BODY).status_code == (200 if gets_ready else 503)
    rows, (writer,) = stored(tmp_path), stored(tmp_path, WRITERS)
    assert [row["code"] for row in rows[:2]] == ["loading", "loading"]
    assert len(rows) == front.ledger.writers[0].written == (4 if gets_ready else 3)
    minutes = [(writer["began"] // MINUTE) - row["minute"] for row in rows]
    assert all(abs(each) <= 1 for each in minutes), "retention goes by them"
    assert (writer["device_ns"] > 0) == gets_ready and exact(tmp_path)


LOSING = {
    "cascade": {"cascade": ["small", "large"], "accept": {"regex": "no such text"}},
    "ensemble": {"ensemble": ["large", "large", "large"], "choose": "best"},
    "fallback": {"fallback": ["small", "large"], "timeout": ["100ms", "none"]},
    "hedge": {"fallback": ["small", "large"], "timeout": ["100ms", "none"], "hedge": True},
}


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("kind", LOSING)
def test_every_attempt_of_a_route_ends_and_only_the_answered_one_is_sent(tmp_path, kind, keeps):
    ledger = {"url": str(tmp_path / "ledger.db"), "flush": "50ms"} if keeps else {}
    models = [{"name": "small"}, {"name": "large"}]
    config = ServerConfig(
        models=models, routes={"mine": LOSING[kind]}, ledger=ledger, prices=PRICES
    )
    slow = Permitted()
    if kind == "cascade":
        slow.permits.release(1_000)

    def engine(config):
        return (slow.engine if config.model.served_name == "small" else fake)(config)

    with serving(config, engine) as (url, front), client_of(url) as client:
        told = [each for model in front.models for each in model.admission.watchers]
        books = [each for each in told if isinstance(each, Book)]
        answer = client.post(PATH, json=BODY | {"model": "mine"}).json()
        slow.permits.release(1_000)
        until(lambda: not any(each._calls or each._open for each in books))
        assert not front.spend._reserved and not front.spend._calls
        whole, count = answer["id"].rpartition(".")[0], 3 if kind == "ensemble" else 2
        ids = {f"{whole}.{1 + number}" for number in range(count)}
        for id in ids:
            found = client.get(f"/v1/requests/{id}").json()
            assert found["status"] == "ended"
            assert id == answer["id"] or "sending" not in stages_of(found)
        if keeps:
            until(lambda: {row["call"] for row in stored(tmp_path)} == ids)
    assert not keeps or exact(tmp_path)


def test_requests_are_served_and_lost_rows_counted_without_the_database(tmp_path, monkeypatch):
    with serving(config_of(tmp_path, rows=2), fake) as (url, front), client_of(url) as client:
        writer = front.ledger.writers[0]
        until(lambda: client.post(PATH, json=BODY).status_code == 200 and writer.written)
        before, write = writer.written, writer._store.write

        def gone(*given):
            raise StoreError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(writer._store, "write", gone)
            patched.setattr(writer._store, "open_pids", gone)
            until(lambda: writer.away)
            ids = [client.post(PATH, json=BODY).json()["id"] for _ in range(6)]
            assert all(client.get(f"/v1/requests/{id}").status_code == 200 for id in ids)
            until(lambda: front.ledger.books.unkept)
            said = client.get("/metrics").text
            assert "headway_ledger_away 1.0" in said
        assert writer._store.write == write
        until(lambda: not writer.away)
        until(lambda: front.ledger.books.unkept + writer.written - before >= 6)
    rows, minutes = stored(tmp_path), stored(tmp_path, MINUTES)
    lost = sum(each["requests"] for each in minutes if each["account"] == "unrecorded")
    assert lost >= front.ledger.books.unkept > 0 and exact(tmp_path)
    assert sum(each["nanoseconds"] for each in minutes if each["account"] == "open") == 0
    assert len(rows) == writer.written


def test_a_database_that_does_not_answer_counts_as_away(tmp_path, monkeypatch):
    answers, asked = threading.Event(), threading.Event()
    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        writer, write = front.ledger.writers[0], front.ledger.writers[0]._store.write

        def slow(*given):
            asked.set()
            answers.wait(30)
            write(*given)

        monkeypatch.setattr("headway.server.ledger.writer.STALLED", 10**7)
        monkeypatch.setattr(writer._store, "write", slow)
        assert asked.wait(30)
        until(lambda: front.spend.is_away())
        assert client.post(PATH, json=BODY).status_code == 200
        answers.set()
        until(lambda: writer.written and not writer.away)
    assert exact(tmp_path)


def test_a_server_writes_on_into_a_store_restored_from_a_backup(tmp_path):
    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        writer = front.ledger.writers[0]
        client.post(PATH, json=BODY)
        until(lambda: writer.written)
        store = Database(str(tmp_path / "ledger.db"), alone=False)
        with store.begin() as connection:  # the backup is older than the server
            for table in (REQUESTS, MINUTES, WRITERS):
                connection.execute(table.delete())
        store.close()
        id = client.post(PATH, json=BODY).json()["id"]
        until(lambda: any(row["call"] == id for row in stored(tmp_path)))
    assert exact(tmp_path) and not writer.away


def test_rows_wait_while_the_database_is_read_only(tmp_path):
    with postgresql() as where, serving(config_of(tmp_path, url=where), fake) as (url, front):
        writer, count = front.ledger.writers[0], [0]

        def post():
            with client_of(url) as client:
                while not writer.away:
                    count[0] += client.post(PATH, json=BODY).status_code == 200

        with psycopg.connect(where, autocommit=True) as other, ThreadPoolExecutor(1) as callers:
            other.execute("SET default_transaction_read_only = off")
            posting = callers.submit(post)
            until(lambda: writer.written)
            other.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
            other.execute(DISCONNECT)
            posting.result(60)
            before = writer.failures
            until(lambda: writer.failures > before + STUBBORN)
            other.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
            other.execute(DISCONNECT)
            until(lambda: writer.written == count[0])
        assert writer.given_up == 0


@pytest.mark.parametrize("refused", ["row", "lane"])
def test_rows_that_the_database_refuses_do_not_hold_up_later_ones(tmp_path, monkeypatch, refused):
    """refused: the invalid part of a flush. A lane's name is also in the minutes of the flush."""
    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        writer, write = front.ledger.writers[0], front.ledger.writers[0]._store.write
        wrong = set()

        def picky(who, flush, alive_until):
            has_bad = any(row["workflow"] == "bad" for row in flush.requests)
            if has_bad:
                wrong.add(flush.number)
            has_lane = flush.number in wrong and any(key.lane for key in flush.minutes)
            if has_bad or (refused == "lane" and has_lane):
                raise StoreError(f"a {refused} is not valid")
            write(who, flush, alive_until)

        monkeypatch.setattr(writer._store, "write", picky)
        client.post(PATH, json=BODY, headers={"x-headway-workflow": "bad"})
        until(lambda: writer.given_up)
        client.post(PATH, json=BODY, headers={"x-headway-workflow": "good"})
        until(lambda: any(row["workflow"] == "good" for row in stored(tmp_path)))
    minutes = stored(tmp_path, MINUTES)
    assert sum(each["requests"] for each in minutes if each["account"] == "unrecorded") >= 1
    assert exact(tmp_path) and writer.given_up >= 1


def test_jobs_and_ledger_can_share_one_store(tmp_path):
    where = str(tmp_path / "ledger.db")
    config = ServerConfig(ledger={"url": where, "flush": "50ms"}, jobs={"store": where})
    with serving(config, fake) as (url, _), client_of(url) as client:
        later = client.post(PATH, json=BODY, headers={"prefer": "respond-async"})
        assert later.status_code == 202
        until(lambda: len(stored(tmp_path)) == 1)
    (row,) = stored(tmp_path)
    assert row["lane"] == "offline" and exact(tmp_path)
    assert row["request_id"] == later.headers["x-request-id"]


def test_an_unusable_store_is_answered_with_503_that_names_it(tmp_path, monkeypatch):
    def gone(*given, **named):
        raise StoreError("the disk of /secret is full")

    config = config_of(tmp_path)
    config = ServerConfig(ledger=config.ledger, jobs={"store": str(tmp_path / "jobs.db")})
    with serving(config, fake) as (url, front), client_of(url) as client:
        for each in ("call_of", "has_workflow"):
            monkeypatch.setattr(front.ledger._outcomes, each, gone)
        monkeypatch.setattr(front.jobs.store.jobs, "page", gone)
        said = "the ledger cannot be used now"
        outcome = {"workflow": "wf", "label": "ok"}
        for answer, what in (
            (client.get("/v1/requests/nobodys"), said),
            (client.post("/v1/outcomes", json=outcome), said),
            (client.get("/v1/jobs"), "the store of jobs cannot be used now"),
        ):
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (503, "store_down")
            assert error["message"] == what and answer.headers["retry-after"]


def test_a_later_call_keeps_its_labels(tmp_path):
    where = str(tmp_path / "ledger.db")
    config = ServerConfig(ledger={"url": where, "flush": "50ms"}, jobs={"store": where})
    given = {
        "prefer": "respond-async",
        "x-headway-lane": "offline",
        "x-headway-workflow": "wf",
        "x-headway-prompt-version": "pv9",
        "x-headway-attempt": "2",
        "x-headway-expected-tokens": "3",
        "x-request-id": "later \xe9",
    }
    encoded = [(name, value.encode("latin-1")) for name, value in given.items()]
    expected = []
    with serving(config, fake) as (url, front), client_of(url) as client:
        call = front.model.call

        async def noted(routed, *others):
            expected.append(routed.expected)
            return await call(routed, *others)

        front.model.call = noted
        assert client.post(PATH, json=BODY, headers=encoded).status_code == 202
        until(lambda: len(stored(tmp_path)) == 1)
        outcome = {"workflow": "wf", "label": "ok"}
        assert client.post("/v1/outcomes", json=outcome).status_code == 200
    (row,) = stored(tmp_path)
    assert (row["prompt_version"], row["workflow"], row["attempt"]) == ("pv9", "wf", 2)
    assert row["request_id"] == given["x-request-id"] and expected == [3]
