"""Files, batches and later calls: a real server on loopback, the real `openai` client."""

import asyncio
import json
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import httpx2
import openai
import pytest
from sqlalchemy import select, update
from standardwebhooks import Webhook
from starlette.requests import ClientDisconnect

from headway.core.request import NEVER
from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.server.config.sections.jobs import WebhookSettings, new_secret
from headway.server.config.sections.keys import digest
from headway.server.http.body import BodyReader
from headway.server.http.errors import CLIENT_GONE
from headway.server.jobs import keeper, runner, service, webhooks
from headway.server.jobs.metrics import JobMetrics
from headway.server.jobs.routes.calls import LaterCalls
from headway.server.jobs.routes.upload import PART, Upload
from headway.server.jobs.store import JobStore
from headway.server.listening.connections import RECEIVING
from headway.server.observe.logs import logger
from headway.store.database import Database, StoreError
from headway.store.deliveries import Deliveries, Delivery, add_deliveries, delivery_id
from headway.store.endings import Endings
from headway.store.items.items import Items, NewItem, add_item
from headway.store.items.taking import MOST_ATTEMPTS
from headway.store.jobs import IN_PROGRESS, Job, Jobs
from headway.store.tables import ITEMS, WORKERS
from tests.postgresql import postgresql
from tests.server.http.raw_client import Hostile
from tests.server.running_server import Permitted, embedded, fake, serving, until

CHAT = "/v1/chat/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}


def config_of(tmp_path, keys=(), **jobs):
    store = {"store": str(tmp_path / "jobs.db"), **jobs}
    made = [{"name": name, "sha256": digest(name).hex()} for name in keys]
    return ServerConfig(jobs=store, keys=made)


def client_of(url, key="x"):
    return openai.OpenAI(
        base_url=f"{url}/v1", api_key=key, max_retries=0, _strict_response_validation=True
    )


def lines(*bodies, url=CHAT):
    about = {"method": "POST", "url": url}
    each = [{"custom_id": f"c{i}", **about, "body": body} for i, body in enumerate(bodies)]
    return "".join(json.dumps(line) + "\n" for line in each).encode()


def chat(text, **more):
    turns = [{"role": "user", "content": text}]
    about = {"model": "headway-tiny", "max_tokens": 4, "temperature": 0}
    return {**about, "messages": turns, **more}


def begun(client, content, endpoint=CHAT, **more):
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    window = {"completion_window": "24h", **more}
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, **window)


def ended(client, batch):
    until(lambda: client.batches.retrieve(batch.id).status in ENDED)
    return client.batches.retrieve(batch.id)


def results(client, id):
    found = [json.loads(line) for line in client.files.content(id).text.splitlines()]
    return {each["custom_id"]: each for each in found}


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """Shorten the second between two looks at the store, and the pause after the store failed."""
    for module, name in ((webhooks, "LOOK"), (keeper, "LOOK"), (runner, "PAUSE")):
        assert getattr(module, name) == 1.0
        monkeypatch.setattr(module, name, 0.05)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    with serving(config_of(folder, file_bytes=1 << 20, lines=200), embedded) as (url, _):
        yield url


@pytest.fixture
def client(url):
    with client_of(url) as made:
        yield made


def test_a_batch_of_chats_has_its_answers_and_errors_in_two_files(client):
    bodies = [chat(f"Say {i}") for i in range(20)]
    bodies[3]["max_tokens"] = -1
    batch = ended(client, begun(client, lines(*bodies), metadata={"for": "a test"}))
    assert batch.status == "completed" and batch.metadata == {"for": "a test"}
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (20, 19, 1)
    assert batch.model == "headway-tiny" and batch.completion_window == "24h"
    good, bad = (results(client, each) for each in (batch.output_file_id, batch.error_file_id))
    assert good.keys() | bad.keys() == {f"c{i}" for i in range(20)} and bad.keys() == {"c3"}
    usage = [each["response"]["body"]["usage"] for each in good.values()]
    assert batch.usage.output_tokens == sum(each["completion_tokens"] for each in usage)
    assert batch.usage.input_tokens == sum(each["prompt_tokens"] for each in usage)
    alone = client.chat.completions.create(**bodies[0]).choices[0].message.content
    said = good["c0"]["response"]["body"]["choices"][0]["message"]["content"]
    assert said == alone
    assert bad["c3"]["response"]["status_code"] == 400
    assert bad["c3"]["response"]["body"]["error"]["param"] == "max_tokens"
    assert client.batches.list(limit=1).data[0].id == batch.id
    output = client.files.retrieve(batch.output_file_id)
    assert output.bytes == len(client.files.content(output.id).content)
    assert output.purpose == "batch_output" and output.filename == f"{batch.id}_output.jsonl"
    assert client.files.delete(output.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(output.id)
    assert results(client, batch.error_file_id).keys() == {"c3"}


def test_a_batched_embedding_equals_that_of_a_direct_call(client):
    content = lines({"model": "headway-tiny", "input": "a"}, url="/v1/embeddings")
    batch = ended(client, begun(client, content, "/v1/embeddings"))
    body = results(client, batch.output_file_id)["c0"]["response"]["body"]
    alone = client.embeddings.create(model="headway-tiny", input="a", encoding_format="float")
    assert body["data"][0]["embedding"] == pytest.approx(alone.data[0].embedding, abs=1e-5)


GOOD = lines(chat("a"))


@pytest.mark.parametrize(
    "content, code, line",
    [
        (b"", "empty_file", None),
        (b"\n\n", "empty_file", None),
        (b"nothing\n", "invalid_json_line", 1),
        (b"[1]\n", "invalid_json_line", 1),
        (GOOD + GOOD, "duplicate_custom_id", 2),
        (GOOD.replace(b"POST", b"GET"), "invalid_method", 1),
        (GOOD.replace(b"chat/", b""), "mismatched_endpoint", 1),
        (GOOD.replace(b'"custom_id": "c0", ', b""), "missing_required_parameter", 1),
        (GOOD.replace(b'"c0"', b'""'), "invalid_custom_id", 1),
        (GOOD.replace(b'"c0"', b'"a\\u0000b"'), "invalid_custom_id", 1),
        (GOOD.replace(b'"method"', b'"more": 1, "method"'), "unknown_field", 1),
        (lines(7), "invalid_body", 1),
        (lines(chat("a", stream=True)), "invalid_body", 1),
        (lines(*[chat("a")] * 201), "too_many_requests", 201),
        (b"\xff\xfe" + GOOD, "invalid_json_line", 1),
    ],
)
def test_an_invalid_input_file_fails_its_batch_and_its_line_is_named(client, content, code, line):
    batch = ended(client, begun(client, content))
    assert batch.status == "failed" and batch.failed_at
    [error] = batch.errors.data
    assert (error.code, error.line) == (code, line)
    assert batch.output_file_id is None and batch.error_file_id is None


@pytest.mark.parametrize(
    "field, name",
    [
        ({"max_tokens": 7}, "body.max_tokens"),
        ({"logit_bias": {"5": -7}}, "body.logit_bias.5"),
        ({"stop": ["a", 7]}, "body.stop.1"),
    ],
)
def test_a_number_too_large_for_a_float_fails_its_batch_and_is_named(client, field, name):
    content = lines(chat("a"), chat("b", **field)).replace(b"7", b"7e999")
    [error] = ended(client, begun(client, content)).errors.data
    assert (error.code, error.line, error.param) == ("invalid_body", 2, name)
    assert error.message == f"'{name}' is a number that is too large"


def test_an_input_file_may_have_crlf_lines_and_no_last_newline(client):
    content = lines(chat("a"), chat("b")).replace(b"\n", b"\r\n").removesuffix(b"\r\n")
    assert ended(client, begun(client, content)).request_counts.completed == 2


@pytest.mark.parametrize(
    "body, param",
    [
        ({"endpoint": "/v1/responses"}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "800h"}, "completion_window"),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"input_file_id": "file-none"}, "input_file_id"),
        ({"priority": 1}, "priority"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after"),
    ],
)
def test_an_invalid_batch_request_is_refused_and_its_field_named(url, client, body, param):
    file = client.files.create(file=("in.jsonl", GOOD), purpose="batch")
    asked = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **body}
    answer = httpx2.post(f"{url}/v1/batches", json=asked)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"].startswith(param)


AGED = {"file": b"a", "purpose": "batch", "expires_after[anchor]": "created_at"}


def form(url, **fields):
    files = {"file": ("in.jsonl", fields.pop("file"))} if "file" in fields else {"x": b""}
    return httpx2.post(f"{url}/v1/files", data=fields, files=files)


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"purpose": "batch"}, "file"),
        ({"file": b"a"}, "purpose"),
        ({"file": b"a", "purpose": "vision"}, "purpose"),
        ({"file": b"a", "purpose": "batch", "more": "1"}, "more"),
        ({"file": b"a", "purpose": "batch", "expires_after[seconds]": "9"}, "expires_after.anchor"),
        ({**AGED, "expires_after[seconds]": "9"}, "expires_after.seconds"),
        ({**AGED, "expires_after[seconds]": "١٢٣٤٥"}, "expires_after.seconds"),
        ({"file": b"a" * 2**21, "purpose": "batch"}, "file"),
        ({"file": b"a", "purpose": "b" * 5_000}, "purpose"),
        ({"file": b"a", "purpose": "batch", **{f"x{n}": "1" for n in range(16)}}, None),
    ],
)
def test_an_invalid_upload_is_refused_and_leaves_no_file(url, client, fields, param):
    before = len(client.files.list().data)
    answer = form(url, **fields)
    assert answer.status_code in (400, 413)
    assert answer.json()["error"]["param"] == param
    assert len(client.files.list().data) == before


def test_a_form_field_that_is_no_file_holds_4096_bytes_at_most(url):
    answer = form(url, file=b"a", purpose="b" * 4_097)
    assert answer.json()["error"]["message"] == "'purpose' has more than 4096 bytes"


def test_expires_after_sets_a_files_expiry(client):
    after = {"anchor": "created_at", "seconds": 3_600}
    made = client.files.create(file=("a", b"a"), purpose="batch", expires_after=after)
    assert made.expires_at == made.created_at + 3_600


@pytest.mark.parametrize("size", [0, 1, 256 << 10, (256 << 10) + 1, 1 << 20])
def test_a_files_content_is_returned_unchanged(url, client, size):
    content = bytes(i * 7 % 251 for i in range(size))
    made = client.files.create(file=("a", content), purpose="batch")
    assert made.bytes == size
    assert client.files.content(made.id).content == content


@pytest.mark.parametrize("fails", [False, True])
def test_the_download_of_a_file_that_is_deleted_meanwhile_is_cut_off(tmp_path, caplog, fails):
    def shorter(file):
        yield b"a"
        if fails:
            away()

    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        file = client.files.create(file=("a", b"ab"), purpose="batch")
        front.jobs.store.files.content = shorter
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            httpx2.get(f"{url}/v1/files/{file.id}/content")
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_a_truncated_form_is_refused(url):
    kind = "multipart/form-data; boundary=b"
    cut = b'--b\r\ncontent-disposition: form-data; name="file"; filename="x"\r\n\r\nabc'
    answer = httpx2.post(f"{url}/v1/files", content=cut, headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "the form is cut off")
    answer = httpx2.post(f"{url}/v1/files", content=b"?", headers={"content-type": kind})
    assert answer.status_code == 400
    assert httpx2.post(f"{url}/v1/files", json={}).status_code == 415


UPLOAD = (
    b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n"
    b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\n'
)


def test_each_part_of_an_upload_has_as_long_as_a_whole_body(tmp_path):
    with serving(config_of(tmp_path), fake) as (url, front):
        receiving = front.http_server.connections._by_stage[RECEIVING]
        sender = Hostile(url).say(UPLOAD)
        until(lambda: receiving)
        [connection] = receiving
        before = connection.deadline
        sender.say(b"a" * PART)
        until(lambda: connection.deadline > before)
        sender.close()


def test_a_client_that_leaves_while_a_part_is_stored_is_no_fault(tmp_path, monkeypatch):
    put, receive, uploads, ends = Upload._put, Upload._receive, [], []
    with serving(config_of(tmp_path), fake) as (url, front):
        receiving = front.http_server.connections._by_stage[RECEIVING]
        sender = Hostile(url)

        async def put_meanwhile(upload, id):
            await put(upload, id)
            sender.close()
            while receiving:
                await asyncio.sleep(0)

        async def receive_seen(upload, *given):
            uploads.append(upload)
            try:
                await receive(upload, *given)
            except BaseException as error:
                ends.append(type(error))
                raise

        monkeypatch.setattr(Upload, "_put", put_meanwhile)
        monkeypatch.setattr(Upload, "_receive", receive_seen)
        sender.say(UPLOAD + b"a" * (PART - 1))
        until(lambda: uploads and len(uploads[0]._held) > PART - 100)
        sender.say(b"a" * 200)  # so little that the server goes on reading, and sees the end
        until(lambda: ends)
    assert ends == [ClientDisconnect]


def test_the_server_ends_although_a_client_left_while_its_body_was_not_read(tmp_path, monkeypatch):
    stored = threading.Event()
    with serving(config_of(tmp_path), fake) as (url, front):
        receiving = front.http_server.connections._by_stage[RECEIVING]

        async def put(upload, id):
            upload._held.clear()
            stored.set()
            while receiving:
                await asyncio.sleep(0)

        monkeypatch.setattr(Upload, "_put", put)
        sender = Hostile(url).say(UPLOAD + b"a" * 2 * PART)
        assert stored.wait(60)
        sender.close()


def test_a_form_with_an_overlong_boundary_is_refused(url):
    kind = f"multipart/form-data; boundary={'a' * 500}"
    answer = httpx2.post(f"{url}/v1/files", content=b"hello", headers={"content-type": kind})
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400 and message.startswith("the form cannot be read: Boundary")


def test_files_are_listed_newest_first_in_pages(client):
    made = [client.files.create(file=("p", b"a"), purpose="batch").id for _ in range(3)]
    first = client.files.list(limit=2)
    assert [each.id for each in first.data] == made[:0:-1] and first.has_more
    assert client.files.list(limit=1, after=made[1]).data[0].id == made[0]
    everything = [each.id for each in client.files.list(limit=2)]
    assert everything[:3] == made[::-1]
    with pytest.raises(openai.BadRequestError):
        client.files.list(limit=0)


@pytest.mark.parametrize(
    "path, query, param, why",
    [
        ("files", {"limit": "0"}, "limit", "'limit' must be from 1 to 10000"),
        ("batches", {"limit": "١"}, "limit", "'limit' must be from 1 to 100"),
        ("files", {"order": "up"}, "order", "'order' must be desc or asc"),
        ("files", {"oder": "asc"}, "oder", "a known parameter: did you mean 'order'?"),
        ("batches", {"order": "asc"}, "order", "a known parameter: there are after, limit"),
        ("jobs", {"limits": "1"}, "limits", "a known parameter: did you mean 'limit'?"),
        ("files", {"after": "nope"}, "after", "there is no file 'nope'"),
        ("batches", {"after": "nope"}, "after", "there is no batch 'nope'"),
        ("jobs", {"after": "nope"}, "after", "there is no job 'nope'"),
    ],
)
def test_an_invalid_list_query_is_refused_and_its_parameter_named(url, path, query, param, why):
    answer = httpx2.get(f"{url}/v1/{path}", params=query)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (404 if "after" in query else 400, param)
    assert error["message"].endswith(why)


def test_files_can_be_deleted_while_they_are_paged_through(client):
    made = {client.files.create(file=("p", b"a"), purpose="batch").id for _ in range(3)}
    for each in client.files.list(limit=1):
        client.files.delete(each.id)
        made.discard(each.id)
    assert not made and not client.files.list().data


def test_batches_are_listed_newest_first_in_pages(client):
    made = [ended(client, begun(client, GOOD)).id for _ in range(3)]
    listed = [each.id for each in client.batches.list(limit=1)]
    assert listed[:3] == made[::-1]


def later(url, body, path=CHAT, **headers):
    return httpx2.post(f"{url}{path}", json=body, headers={"prefer": "respond-async", **headers})


def test_a_later_call_is_accepted_and_its_result_can_be_fetched(url, client):
    accepted = later(url, chat("Say 1"))
    assert accepted.status_code == 202 and accepted.headers["preference-applied"]
    place = f"{url}{accepted.headers['location']}"
    job = httpx2.get(place, headers={"prefer": "wait=20"}, timeout=30).json()
    assert (job["status"], job["result"]["status_code"]) == ("completed", 200)
    alone = client.chat.completions.create(**chat("Say 1"))
    said = job["result"]["body"]["choices"][0]["message"]["content"]
    assert said == alone.choices[0].message.content
    result = httpx2.get(f"{place}/result")
    assert (result.status_code, result.json()) == (200, job["result"]["body"])
    assert httpx2.post(f"{place}/cancel").json()["status"] == "completed"
    assert httpx2.get(f"{url}/v1/jobs").json()["data"][0]["id"] == job["id"]


@pytest.mark.parametrize(
    "header, value, code, why",
    [
        ("x-headway-workflow", "a b", "invalid_label", "a label has up to 128"),
        ("x-headway-attempt", "-1", "invalid_label", "an attempt is a number"),
        ("x-headway-expected-tokens", "abc", None, "must be a whole number from 1"),
        ("x-headway-lane", "batch", "invalid_value", "runs in the lane 'offline', not in 'batch'"),
        ("x-headway-due-ms", "9", "invalid_value", "a later call cannot have x-headway-due-ms"),
        ("x-headway-timeout-ms", "9", "invalid_value", "cannot have x-headway-timeout-ms"),
        ("x-slo-ttft-ms", "9", "invalid_value", "cannot have x-slo-ttft-ms"),
        ("x-headway-supersede", "a", "invalid_value", "cannot have x-headway-supersede"),
    ],
)
def test_a_later_call_with_a_bad_or_unsupported_header_is_refused(url, header, value, code, why):
    answer = later(url, chat("a"), **{header: value})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, header, code)
    assert why in error["message"]


def test_a_client_that_leaves_while_its_later_call_comes_is_no_fault_of_the_server():
    about = {"path": CHAT, "method": "POST", "query_string": b""}
    headers = [(b"prefer", b"respond-async"), (b"content-type", b"application/json")]
    comes = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    host = SimpleNamespace(endpoints={CHAT: frozenset(["application/json"])}, lane="offline")
    nothing = {"caller": lambda request: None, "may_add": lambda *given: None}
    jobs, sent = SimpleNamespace(host=host, body_bytes=99, **nothing), []

    async def receive():
        return comes.pop(0)

    async def send(message):
        sent.append(message)

    app = LaterCalls(None, jobs, BodyReader(99, NEVER, lambda size: None))
    asyncio.run(app({"type": "http", "headers": headers, **about}, receive, send))
    assert sent[0]["status"] == CLIENT_GONE and comes == []


@pytest.mark.parametrize(
    "wrong", [{"max_tokens": -1}, {"structured_outputs": {"choice": ["yes"]}, "min_tokens": 4}]
)
def test_a_failed_later_call_keeps_the_status_of_its_error(url, wrong):
    place = later(url, chat("a", **wrong)).headers["location"]
    job = httpx2.get(f"{url}{place}", headers={"prefer": "wait=20"}, timeout=30).json()
    assert (job["status"], job["result"]["status_code"]) == ("failed", 400)
    assert httpx2.get(f"{url}{place}/result").status_code == 400


def test_a_streamed_later_call_has_its_events_as_its_result(url):
    place = later(url, chat("a", stream=True)).headers["location"]
    until(lambda: httpx2.get(f"{url}{place}").json()["status"] == "completed")
    result = httpx2.get(f"{url}{place}/result")
    assert result.headers["content-type"].startswith("text/event-stream")
    assert result.text.endswith("data: [DONE]\n\n")


def test_a_repeated_idempotency_key_finds_the_same_job(url):
    first = later(url, chat("a"), **{"idempotency-key": "one"}).json()
    assert later(url, chat("a"), **{"idempotency-key": "one"}).json()["id"] == first["id"]
    other = later(url, chat("b"), **{"idempotency-key": "one"})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_used")
    long = later(url, chat("a"), **{"idempotency-key": "k" * 256})
    assert (long.status_code, long.json()["error"]["param"]) == (400, "idempotency-key")


def test_metrics_count_jobs_and_their_items(url, client):
    batch = ended(client, begun(client, lines(chat("a"), chat("b", max_tokens=-1))))
    assert batch.status == "completed"
    text = httpx2.get(f"{url}/metrics").text
    for sample in (
        'headway_job_items_total{outcome="answered"}',
        'headway_job_items_total{outcome="failed"}',
        'headway_jobs_total{kind="batch",status="completed"}',
    ):
        [line] = [line for line in text.splitlines() if line.startswith(sample)]
        assert float(line.split()[-1]) >= 1
    assert "headway_job_items_running 0.0" in text


def test_unknown_files_batches_and_jobs_are_answered_with_404(url):
    for path in ("files/x", "files/x/content", "batches/x", "jobs/x", "jobs/x/result"):
        assert httpx2.get(f"{url}/v1/{path}").status_code == 404, path
    for path in ("batches/x/cancel", "jobs/x/cancel"):
        assert httpx2.post(f"{url}/v1/{path}").status_code == 404, path


def test_an_id_with_a_nul_is_answered_with_404(url):
    with (
        postgresql() as store,
        serving(ServerConfig(jobs={"store": store}), fake) as (other, _),
    ):
        batch = {"input_file_id": "a\0", "endpoint": CHAT, "completion_window": "1h"}
        for base in (url, other):
            for path in ("files/a%00", "files/a%00/content", "batches/a%00", "jobs/a%00/result"):
                assert httpx2.get(f"{base}/v1/{path}").status_code == 404, path
            for path in ("files", "batches", "jobs"):
                answer = httpx2.get(f"{base}/v1/{path}?after=%00")
                assert (answer.status_code, answer.json()["error"]["param"]) == (404, "after")
            for path in ("batches", "jobs"):
                assert httpx2.post(f"{base}/v1/{path}/a%00/cancel").status_code == 404
            assert httpx2.delete(f"{base}/v1/files/a%00").status_code == 404
            error = httpx2.get(f"{base}/v1/files?purpose=%00").json()["error"]
            assert (error["param"], error["message"]) == ("purpose", "'purpose' has a NUL")
            answer = httpx2.post(f"{base}/v1/batches", json=batch)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_such_file")


def test_without_a_store_the_routes_of_jobs_do_not_exist():
    with serving(ServerConfig(), fake) as (url, _):
        assert httpx2.get(f"{url}/v1/batches").status_code == 404
        assert "/v1/batches" not in httpx2.get(f"{url}/openapi.json").json()["paths"]


def test_a_tenant_cannot_see_or_use_files_and_batches_of_another(tmp_path):
    with (
        serving(config_of(tmp_path, keys=("ann", "bob")), fake) as (url, _),
        client_of(url, "ann") as ann,
        client_of(url, "bob") as bob,
        client_of(url, "eve") as eve,
    ):
        batch = begun(ann, GOOD)
        with pytest.raises(openai.AuthenticationError):
            eve.batches.list()
        with pytest.raises(openai.NotFoundError):
            bob.batches.retrieve(batch.id)
        with pytest.raises(openai.NotFoundError):
            bob.files.content(batch.input_file_id)
        with pytest.raises(openai.NotFoundError):
            bob.batches.cancel(batch.id)
        with pytest.raises(openai.NotFoundError):
            bob.batches.list(after=batch.id)
        with pytest.raises(openai.NotFoundError):
            bob.batches.create(
                input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"
            )
        assert not bob.batches.list().data and not bob.files.list().data
        assert ended(ann, batch).request_counts.completed == 1


def test_a_running_batch_can_be_cancelled(tmp_path):
    executor = Permitted()
    config = config_of(tmp_path, at_once=4)
    with serving(config, executor.engine) as (url, front), client_of(url) as client:
        batch = begun(client, lines(*[chat(f"{i}") for i in range(50)]))
        until(lambda: executor.asked)
        assert client.batches.cancel(batch.id).status == "cancelling"
        executor.permits.release(10_000)
        batch = ended(client, batch)
        assert batch.status == "cancelled" and batch.cancelled_at
        counts = batch.request_counts
        assert counts.completed + counts.failed == counts.total == 50
        errors = results(client, batch.error_file_id).values()
        assert {each["error"]["code"] for each in errors} == {"batch_cancelled"}
        until(lambda: front.model.admission.open == 0)  # the engine has dropped the running items


def test_a_batch_expires_after_its_window_with_an_error_for_each_item(tmp_path, monkeypatch):
    executor, today = Permitted(), [clock.unix()]
    monkeypatch.setattr(clock, "unix", lambda: today[0])
    with (
        serving(config_of(tmp_path, at_once=2), executor.engine) as (url, _),
        client_of(url) as client,
    ):
        batch = begun(client, lines(*[chat("a")] * 5), completion_window="5s")
        until(lambda: executor.asked)
        today[0] += 5
        batch = ended(client, batch)
        executor.permits.release(10_000)
        assert batch.status == "expired" and batch.request_counts.failed == 5
        errors = results(client, batch.error_file_id).values()
        assert {each["error"]["code"] for each in errors} == {"batch_expired"}


def test_a_restarted_server_completes_its_batch_and_its_later_call(tmp_path):
    executor, config = Permitted(), config_of(tmp_path, at_once=4)
    with serving(config, executor.engine) as (url, front), client_of(url) as client:
        batch = begun(client, lines(*[chat(f"{i}") for i in range(12)]))
        call = later(url, chat("x")).json()
        until(lambda: executor.asked)

        def one_has_ended():  # one step per look, for the batch's items or for the call
            executor.permits.release()
            return client.batches.retrieve(batch.id).request_counts.completed

        until(one_has_ended)
        threading.Timer(0, lambda: executor.permits.release(10_000)).start()
        until(lambda: front.jobs.runner is not None)
    with serving(config, fake) as (url, _), client_of(url) as client:
        done = ended(client, batch)
        assert done.request_counts.completed == 12
        assert len(client.files.content(done.output_file_id).text.splitlines()) == 12
        until(lambda: httpx2.get(f"{url}/v1/jobs/{call['id']}").json()["status"] == "completed")


SECRET = "whsec_" + "c2VjcmV0" * 5


@contextmanager
def receiver(*statuses):
    """A webhook endpoint. Gives its URL and the requests it heard. statuses: of its first answers;
    then 204. /slow/head and /slow/body never end their head or body. /moved redirects."""
    heard, answers, is_over = [], list(statuses), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            heard.append((self.path, dict(self.headers), body))
            self.send_response(
                answers.pop(0) if answers else 204 if "slow" not in self.path else 200
            )
            self.send_header("set-cookie", f"visit-{len(heard)}=a; path=/")
            if self.path == "/moved":
                self.send_header("location", "/elsewhere")
            if self.path == "/slow/head":
                self.send_header("x-slow", "")
                self.flush_headers()
            else:
                self.end_headers()
            with suppress(OSError):  # the client has closed
                while "slow" in self.path and not is_over.wait(0.01):
                    self.wfile.write(b"a")

        def log_message(self, *values):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard
    finally:
        is_over.set()
        server.shutdown()
        server.server_close()


def test_webhooks_are_signed_and_a_failed_one_is_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(webhooks, "PAUSES", (1, *webhooks.PAUSES[1:]))
    with receiver(500) as (hooks, heard):
        wanted = [
            {"url": f"{hooks}/all", "secret": SECRET},
            {"url": f"{hooks}/batches", "secret": SECRET, "events": ["batch.completed"]},
            {"url": f"{hooks}/mine/*", "secret": SECRET},
        ]
        with (
            serving(config_of(tmp_path, webhooks=wanted), fake) as (url, front),
            client_of(url) as client,
        ):
            mine = {"x-headway-callback": f"{hooks}/mine/1"}
            job = later(url, chat("a"), **mine).json()
            until(lambda: len(heard) == 2)
            store = front.jobs.store
            until(lambda: any(each.due_at for each in store.deliveries.of_job(job["id"])))
            batch = begun(client, GOOD, extra_headers=mine)
            until(lambda: len(heard) == 6)  # the one answered with 500 is repeated after a pause
            paths = [path for path, _, _ in heard]
            assert sorted(paths[:2]) == ["/all", "/mine/1"]
            assert {"/all", "/batches", "/mine/1"} <= set(paths[2:])
            for _, headers, body in heard:
                known = {name.lower(): value for name, value in headers.items()}
                event = Webhook(SECRET).verify(body, known)
                assert "cookie" not in known  # the endpoint sets one in each answer
                assert event["id"] == known["webhook-id"]
                kind = "batch" if event["data"]["id"] == batch.id else "job"
                assert event["type"] == f"{kind}.completed"
            first = [headers["webhook-id"] for path, headers, _ in heard]
            assert len(set(first)) == 5
            _, headers, body = next(each for each in heard if each[0] == "/batches")
            with openai.OpenAI(api_key="x", webhook_secret=SECRET) as verifier:
                assert verifier.webhooks.unwrap(body, headers).type == "batch.completed"


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_webhook_to_an_unknown_endpoint_is_given_up_only_by_a_lone_server(is_alone):
    """Another server that shares the store may have the endpoint."""
    store = SimpleNamespace(is_alone=is_alone, unix=clock.unix)
    sender = webhooks.WebhookSender(store, webhooks.Endpoints([]), None, None)
    delivery = Delivery("evt_1", "job_1", "job.completed", "https://x", "{}", attempts=1)
    ends = asyncio.run(sender._attempt(None, delivery))
    assert (ends.due_at is None) == is_alone


def test_a_callback_is_told_whichever_server_ends_the_job(tmp_path):
    """The server that accepted it has its endpoint; the one that ends the job may not."""
    now, place = clock.unix(), "https://hooks.example.com/mine/1"
    about = {"window": 60, "created_at": now, "expires_at": now + 60, "callback": place}
    store = Database(str(tmp_path / "jobs.db"))
    jobs, endings = Jobs(store), Endings(store, webhooks.Endpoints([]).announce, lambda: now, 60)
    job = jobs.add(Job(f"batch_{32 * '0'}", "", "", True, CHAT, **about))
    jobs.cancel(job.id, now)
    assert endings.end_some(job)
    [delivery] = Deliveries(store).of_job(job.id)
    assert (delivery.url, delivery.event, delivery.due_at) == (place, "batch.cancelled", now)
    store.close()


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_webhook_for_an_event_that_its_endpoint_does_not_take_is_not_sent(is_alone):
    wanted = WebhookSettings(url="https://x/*", secret=SECRET, events=("job.failed",))
    store = SimpleNamespace(is_alone=is_alone, unix=clock.unix)
    sender = webhooks.WebhookSender(store, webhooks.Endpoints([wanted]), None, None)
    delivery = Delivery("evt_1", "job_1", "job.completed", "https://x/1", "{}", attempts=1)
    ends = asyncio.run(sender._attempt(None, delivery))
    assert (ends.due_at is None) == is_alone and "does not have it" in ends.problem


def test_each_webhook_is_signed_with_the_secret_of_its_endpoint(tmp_path):
    secrets = [SECRET, *(new_secret() for _ in range(4))]
    with receiver() as (hooks, heard):
        urls = ["*", "mine/*", "all", "twice", "twice"]
        wanted = [
            {"url": f"{hooks}/{url}", "secret": secret}
            for url, secret in zip(urls, secrets, strict=True)
        ]
        wanted[3]["events"], wanted[4]["events"] = ["batch.completed"], ["job.completed"]
        with (
            serving(config_of(tmp_path, webhooks=wanted), fake) as (url, _),
            client_of(url) as client,
        ):
            later(url, chat("a"), **{"x-headway-callback": f"{hooks}/mine/1"})
            begun(client, GOOD, extra_headers={"x-headway-callback": f"{hooks}/other"})
            until(lambda: len(heard) == 6)
            refused = later(url, chat("a"), **{"x-headway-callback": f"{hooks}/all"})
            assert refused.json()["error"]["param"] == "X-Headway-Callback"
    signed = {"/mine/1": secrets[1], "/other": secrets[0], "/all": secrets[2]}
    twice = {"batch.completed": secrets[3], "job.completed": secrets[4]}
    for path, headers, body in heard:
        secret = signed.get(path) or twice[json.loads(body)["type"]]
        Webhook(secret).verify(body, {name.lower(): value for name, value in headers.items()})


def test_an_endpoint_that_cannot_be_called_does_not_block_the_others(tmp_path):
    with receiver() as (hooks, heard):
        urls = "http://\u2603.net/", f"{hooks}/good"
        wanted = [{"url": each, "secret": SECRET} for each in urls]
        with serving(config_of(tmp_path, webhooks=wanted), fake) as (url, front):
            store = front.jobs.store

            def has_failed(job):
                found = store._thread.submit(store.deliveries.of_job, job).result()
                return any(each.problem and each.due_at for each in found)

            first, second = (later(url, chat("a")).json()["id"] for _ in range(2))
            until(lambda: has_failed(first) and has_failed(second) and len(heard) == 2)


@contextmanager
def telling(tmp_path, *hosts):
    """Gives a function that makes a later call whose end is told to a path of a receiver, by
    default of the first one. It returns a function that looks the delivery up."""
    wanted = [{"url": f"{each}/*", "secret": SECRET} for each in hosts]
    with serving(config_of(tmp_path, webhooks=wanted), fake) as (url, front):
        store = front.jobs.store

        def tell(path, host=hosts[0]):
            job = later(url, chat("a"), **{"x-headway-callback": f"{host}{path}"}).json()["id"]
            of_job = store.deliveries.of_job
            until(lambda: store._thread.submit(of_job, job).result())
            return lambda: store._thread.submit(of_job, job).result()[0]

        yield tell


def test_an_endpoint_that_does_not_answer_does_not_delay_the_others(tmp_path):
    with receiver() as (hooks, heard), telling(tmp_path, hooks) as tell:
        slow = tell("/slow/head")
        until(lambda: heard)
        good = tell("/good")
        until(lambda: good().delivered_at)
        assert (slow().attempts, slow().problem) == (1, "")  # the attempt has not ended


def test_however_many_webhooks_a_host_does_not_answer_another_host_gets_its_own(tmp_path):
    with (
        receiver() as (dead, unanswered),
        receiver() as (alive, _),
        telling(tmp_path, dead, alive) as tell,
    ):
        told = [tell("/slow/head") for _ in range(webhooks.AT_ONCE + 1)]
        until(lambda: len(unanswered) == webhooks.AT_ONCE)
        good = tell("/good", alive)
        until(lambda: good().delivered_at)
        assert sum(each().attempts for each in told) == webhooks.AT_ONCE  # one still waits


def test_a_webhook_is_delivered_once_its_status_has_come(tmp_path):
    with receiver() as (hooks, _), telling(tmp_path, hooks) as tell:
        endless = tell("/slow/body")
        until(lambda: endless().delivered_at)


def test_an_endpoint_that_answers_410_gone_is_not_called_again(tmp_path):
    with receiver(410, 503) as (hooks, _), telling(tmp_path, hooks) as tell:
        gone = tell("/gone")
        until(lambda: gone().problem)
        assert (gone().problem, gone().due_at) == ("status 410", None)
        away = tell("/away")
        until(lambda: away().problem)
        assert away().problem == "status 503" and away().due_at


def test_a_redirect_by_a_webhooks_endpoint_is_not_followed(tmp_path):
    with receiver(307) as (hooks, heard), telling(tmp_path, hooks) as tell:
        moved = tell("/moved")
        until(lambda: moved().problem)
        assert moved().problem == "status 307" and [path for path, *_ in heard] == ["/moved"]


def test_a_webhook_without_an_answer_in_time_is_due_again(tmp_path, monkeypatch):
    monkeypatch.setattr(webhooks, "TIMEOUT", 0.05)
    with receiver() as (hooks, _), telling(tmp_path, hooks) as tell:
        slow = tell("/slow/head")
        until(lambda: slow().problem)
        assert slow().problem == "no answer within 0.05 s" and slow().due_at


@pytest.mark.parametrize(
    "path",
    [
        *("x://y", "/other/1", "/mine/../other", "/mine/%2E%2e/other", "/mine/..\\other", "/mine"),
        *("/mine/..%2fother", "/mine/a/..%5C..%5cother", "/mine/..;/other", "/mine/..%3Ba/other"),
        "/mine/%252e%25252e/other",
    ],
)
def test_a_callback_outside_the_allowed_urls_is_refused(tmp_path, path):
    allowed = [{"url": "http://127.0.0.1:9/mine/*", "secret": SECRET}]
    with serving(config_of(tmp_path, webhooks=allowed), fake) as (url, _):
        place = path if "://" in path else f"http://127.0.0.1:9{path}"
        answer = later(url, chat("a"), **{"x-headway-callback": place})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "X-Headway-Callback"


def test_an_upload_beyond_the_tenants_storage_limit_is_refused(tmp_path):
    with serving(config_of(tmp_path, tenant_bytes=100), fake) as (url, _), client_of(url) as client:
        first = client.files.create(file=("a", b"a" * 100), purpose="batch")
        with pytest.raises(openai.RateLimitError) as told:
            client.files.create(file=("a", b"a"), purpose="batch")
        assert told.value.body["code"] == "storage_full" and "101 bytes" in str(told.value)
        client.files.delete(first.id)
        client.files.create(file=("a", b"a"), purpose="batch")


def test_an_upload_to_a_full_disk_gets_503_and_leaves_no_file(tmp_path):
    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        store, file = front.jobs.store, b"a" * (1 << 20)

        def pages(most):
            connection = store._database._engine.raw_connection()
            connection.cursor().execute(f"PRAGMA max_page_count={most}")
            connection.close()

        store._thread.submit(pages, 1).result()  # SQLite allows the pages that there are
        with pytest.raises(openai.InternalServerError) as told:
            client.files.create(file=("a", file), purpose="batch")
        assert (told.value.status_code, told.value.body["code"]) == (503, "store_down")
        assert told.value.response.headers["retry-after"]
        store._thread.submit(pages, 10**6).result()
        assert client.files.create(file=("a", file), purpose="batch").bytes == len(file)
        assert len(client.files.list().data) == 1


def test_a_worker_is_in_the_store_before_it_takes_items(tmp_path, monkeypatch):
    exchange, known = Items.exchange, {}

    def noted(items, *given):
        with items._database.begin() as connection:
            workers = connection.execute(select(WORKERS.c.id)).scalars().all()
        known.setdefault(items._worker, workers)  # the module's server may ask meanwhile
        return exchange(items, *given)

    monkeypatch.setattr(Items, "exchange", noted)
    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        batch = begun(client, lines(chat("a")))
        assert ended(client, batch).status == "completed"
        assert known[front.jobs.store.worker] == [front.jobs.store.worker]


def test_items_taken_in_a_lost_answer_of_the_store_are_completed(tmp_path):
    with serving(config_of(tmp_path, at_once=2), fake) as (url, front), client_of(url) as client:
        store = front.jobs.store
        exchange, lost = store.items.exchange, []

        def done_but_unheard(*given):
            taken = exchange(*given)
            if taken and len(lost) < 3:
                lost.append(taken)
                raise StoreError("away")
            return taken

        store.items.exchange = done_but_unheard
        batch = begun(client, lines(*[chat(f"{i}") for i in range(6)]))
        assert ended(client, batch).request_counts.completed == 6
        assert len(lost) == 3


def test_an_item_given_up_in_a_lost_answer_of_the_store_ends(tmp_path, monkeypatch):
    now, item = clock.unix(), NewItem(0, "", b"{}")
    about = {"window": 600, "created_at": now, "expires_at": now + 600, "total": 1}
    job = Job(f"job_{32 * '0'}", "", "", False, CHAT, status=IN_PROGRESS, **about)
    store = Database(str(tmp_path / "jobs.db"))
    Jobs(store).add(job, lambda connection: add_item(connection, job, item))
    with store.begin() as connection:
        connection.execute(update(ITEMS).values(attempts=MOST_ATTEMPTS))
    store.close()
    crashed, lost = Items.crashed, []

    def done_but_unheard(items):
        taken = crashed(items)
        if taken and not lost:
            lost.append(taken)
            raise StoreError("away")
        return taken

    monkeypatch.setattr(Items, "crashed", done_but_unheard)
    with serving(config_of(tmp_path), fake) as (url, _):
        until(lambda: httpx2.get(f"{url}/v1/jobs/{job.id}").json()["status"] == "failed")
    assert lost


def test_deleting_the_input_file_while_it_is_read_fails_its_batch(tmp_path):
    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        store = front.jobs.store
        content = store.files.content

        def cut_off(file):
            yield next(content(file))
            store.files.delete(file.id)
            yield from content(file)

        store.files.content = cut_off
        body = chat("a" * 2_000)
        batch = ended(client, begun(client, lines(*[body] * 300)))
        assert (batch.status, batch.errors.data[0].code) == ("failed", "no_such_file")


def test_deleting_the_input_file_before_it_is_read_fails_its_batch(tmp_path):
    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        store = front.jobs.store
        clear = store.items.clear

        def deleted(job):
            [batch] = store.jobs.having("validating")
            store.files.delete(batch.input_file)
            return clear(job)

        store.items.clear = deleted
        batch = ended(client, begun(client, GOOD))
        assert (batch.status, batch.errors.data[0].code) == ("failed", "no_such_file")


def test_no_item_is_refused_by_the_concurrent_limit_of_its_key(tmp_path):
    keys = [{"name": "x", "sha256": digest("x").hex(), "concurrent": 2}]
    config = ServerConfig(jobs={"store": str(tmp_path / "jobs.db"), "at_once": 8}, keys=keys)
    with serving(config, fake) as (url, front), client_of(url) as client:
        batch = begun(client, lines(*[chat(f"{i}") for i in range(12)]))
        assert ended(client, batch).request_counts.completed == 12
        assert front.jobs.metrics.items["again"] == 0


def test_results_are_kept_until_an_unreachable_store_is_back(tmp_path):
    executor = Permitted()
    with (
        serving(config_of(tmp_path, at_once=2), executor.engine) as (url, front),
        client_of(url) as client,
    ):
        store = front.jobs.store
        batch = begun(client, lines(*[chat(f"{i}") for i in range(6)]))
        until(lambda: executor.asked)
        exchange, store.items.exchange = store.items.exchange, away
        executor.permits.release(10_000)
        until(lambda: front.model.admission.open == 0)
        assert client.batches.retrieve(batch.id).request_counts.completed == 0
        store.items.exchange = exchange
        assert ended(client, batch).request_counts.completed == 6


def test_an_outage_of_the_store_is_logged_once_and_so_is_its_end(tmp_path):
    lines = []
    log = logger("info", lines.append)
    store = JobStore(config_of(tmp_path).jobs, lambda *given: None, lambda *given: None)

    async def main():
        for _ in range(2):
            store.log_outage(log, StoreError("locked"))
            store.log_outage(log, StoreError("locked"))
            with pytest.raises(StoreError):
                await store.ask(away)
            await store.ask(store.now)
            await store.ask(store.now)
        await store.close()

    asyncio.run(main())
    once = ["jobs wait for their store", "the store of jobs is back"]
    assert [each["event"] for each in lines] == once * 2 and lines[0]["cause"] == "locked"


def test_a_server_starts_although_the_store_is_locked_just_then(tmp_path, monkeypatch):
    free_all, locked = Items.free_all, ["locked"]

    def locked_once(items):
        if locked:
            raise StoreError(locked.pop())
        free_all(items)

    monkeypatch.setattr(Items, "free_all", locked_once)
    with serving(config_of(tmp_path), fake) as (url, _), client_of(url) as client:
        assert ended(client, begun(client, GOOD)).status == "completed" and not locked


def test_jobs_go_on_after_an_unforeseen_error(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "AGAIN", 0.05)
    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        items, files = front.jobs.store.items, front.jobs.store.files
        failing = {"exchange": items.exchange, "content": files.content}

        def broken(name):
            def fail_once(*given):
                setattr(items if name == "exchange" else files, name, failing.pop(name))
                raise RuntimeError("unforeseen")

            return fail_once

        items.exchange, files.content = broken("exchange"), broken("content")
        assert ended(client, begun(client, GOOD)).status == "completed" and not failing


def test_a_jobs_end_is_counted_only_once_it_is_committed(tmp_path, monkeypatch):
    announce, failed = webhooks.Endpoints.announce, []

    def unstorable(endpoints, connection, job, now):
        announce(endpoints, connection, job, now)
        if len(failed) < 2:  # a delivery of an unknown job, which only the commit detects
            failed.append(job.id)
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
            add_deliveries(connection, "none", "x", [(delivery_id(now), "", "")], now)

    monkeypatch.setattr(webhooks.Endpoints, "announce", unstorable)
    with serving(config_of(tmp_path), fake) as (url, front), client_of(url) as client:
        batch = ended(client, begun(client, GOOD))
        assert (batch.status, failed) == ("completed", [batch.id] * 2)
        until(lambda: front.jobs.metrics.jobs)
        assert front.jobs.metrics.jobs == {("batch", "completed"): 1}


def test_the_lease_is_renewed_while_many_jobs_end(tmp_path, monkeypatch):
    today, lease = [clock.unix()], []
    monkeypatch.setattr(clock, "now", lambda: today[0] * 10**9)
    monkeypatch.setattr(Database, "now", lambda database: today[0])
    settings = config_of(tmp_path).jobs
    store = JobStore(settings, lambda *given: None, lambda *given: None)
    about = {"window": 1, "created_at": 0, "expires_at": 1, "status": "cancelling"}
    for at in range(9):
        store.jobs.add(Job(f"job_{at}", "t", "k", False, CHAT, ends_as="cancelled", **about))
    end_some = store.endings.end_some

    def slowly(job):
        with store._database.begin() as connection:
            lease.append(connection.execute(select(WORKERS.c.alive_until)).scalar_one() - today[0])
        today[0] += 5
        return end_some(job)

    store.endings.end_some = slowly

    async def main():
        nobody = SimpleNamespace(running={})
        await keeper.Keeper(store, nobody, settings, JobMetrics(), None)._look(today[0])
        await store.close()

    asyncio.run(main())
    assert len(lease) == 18 and min(lease) > 0


def test_the_lease_goes_by_the_stores_clock(tmp_path, monkeypatch):
    """The server's clock is an hour ahead, and is then set back."""
    hour, passed = 3_600, [0]
    wrong = clock.unix() + hour
    monkeypatch.setattr(clock, "now", lambda: passed[0] * 10**9)
    settings = config_of(tmp_path).jobs
    store = JobStore(settings, lambda *given: None, lambda *given: None)
    renewed, keep_alive = [], store.items.keep_alive
    store.items.keep_alive = lambda now, until: renewed.append(until) or keep_alive(now, until)

    async def main():
        kept = keeper.Keeper(store, SimpleNamespace(running={}), settings, JobMetrics(), None)
        await kept._look(wrong)
        passed[0] += keeper.RENEWED
        await kept._look(wrong - hour)
        await store.close()

    asyncio.run(main())
    assert len(renewed) == 2 and max(renewed) < wrong


def away(*given):
    raise StoreError("away")
