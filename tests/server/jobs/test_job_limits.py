"""How much a tenant may store, and repeated requests, which are answered beyond a limit."""

import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from urllib.parse import urlsplit

import openai
import pytest

from headway.server.config.sections.server import ServerSettings
from headway.server.jobs import service
from headway.server.jobs.routes.upload import PART
from headway.store.files import bytes_of
from tests.server.jobs.test_jobs import CHAT, begun, chat, client_of, config_of, ended, later, lines
from tests.server.running_server import Permitted, fake, serving, until

KIND = {"content-type": "multipart/form-data; boundary=b"}
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
)
END = b"\r\n--b--\r\n"


def upload(url, size):
    """Begin to upload a file of `size` bytes, and leave the form's end out."""
    sending = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    length = {"content-length": str(len(FORM) + size + len(END))}
    sending.request("POST", "/v1/files", body=FORM + b"a" * size, headers={**KIND, **length})
    return sending


def answer_of(sending):
    """Send the form's end, and return the answer's status. None: the server has closed the
    connection."""
    with suppress(ConnectionError):
        sending.send(END)
        return sending.getresponse().status


def test_concurrent_uploads_share_their_tenants_storage_limit(tmp_path):
    size = 600 << 10
    with (
        serving(config_of(tmp_path, tenant_bytes=1 << 20), fake) as (url, front),
        ExitStack() as stack,
    ):
        sent = [stack.enter_context(closing(upload(url, size))) for _ in range(4)]
        statuses = [answer_of(each) for each in sent]
        assert statuses.count(200) <= 1 and set(statuses) <= {200, 429, None}
        assert held(front) == statuses.count(200) * size


def held(front):
    """The bytes that the store has of the files of all callers without a key."""
    store = front.jobs.store

    def asked():
        with store._database.begin() as connection:
            return bytes_of(connection, "")

    return store._thread.submit(asked).result()


def test_an_unfinished_upload_counts_against_the_storage_limit(tmp_path):
    with (
        serving(config_of(tmp_path, tenant_bytes=2 * PART), fake) as (url, front),
        closing(upload(url, 2 * PART + 100)),  # a part is stored once all its bytes are there
        client_of(url) as client,
    ):
        until(lambda: held(front) == 2 * PART)
        with pytest.raises(openai.RateLimitError) as told:
            client.files.create(file=("a", b"a"), purpose="batch")
        assert told.value.body["code"] == "storage_full"


def test_a_batchs_input_counts_against_the_storage_limit_until_the_batch_ends(tmp_path):
    executor, content = Permitted(), lines(*[chat("a" * 90)] * 9)
    with (
        serving(config_of(tmp_path, tenant_bytes=2 * len(content)), executor.engine) as (url, _),
        client_of(url) as client,
    ):
        try:
            batch = begun(client, content)
            again = {"input_file_id": batch.input_file_id, "completion_window": "24h"}
            with pytest.raises(openai.RateLimitError) as told:
                client.batches.create(**again, endpoint=CHAT)
            assert told.value.body["code"] == "storage_full"
            until(lambda: client.batches.retrieve(batch.id).status == "in_progress")
            client.files.delete(batch.input_file_id)  # the batch has a copy
            with pytest.raises(openai.RateLimitError):
                client.files.create(file=("a", content + b"a"), purpose="batch")
        finally:
            client.batches.cancel(batch.id)
            executor.permits.release(10_000)
        for each in ended(client, batch).output_file_id, ended(client, batch).error_file_id:
            if each:
                client.files.delete(each)
        client.files.create(file=("a", content + b"a"), purpose="batch")


def test_later_calls_count_against_the_storage_limit_until_they_end(tmp_path):
    executor = Permitted()
    with serving(config_of(tmp_path, tenant_bytes=500), executor.engine) as (url, _):
        try:
            statuses = [later(url, chat("a" * 90)).status_code for _ in range(4)]
            assert statuses == [202, 202, 429, 429]
        finally:
            executor.permits.release(10_000)
        until(lambda: later(url, chat("a" * 90)).status_code == 202)


def test_later_calls_that_wait_to_be_stored_hold_a_bounded_number_of_bytes(tmp_path):
    limits = {"body_bytes": 1_000, "bodies_bytes": 2_000}
    config = config_of(tmp_path).model_copy(update={"server": ServerSettings(limits=limits)})
    body, go = chat("a" * 700), threading.Event()
    with serving(config, fake) as (url, front), ThreadPoolExecutor(2) as callers:
        front.jobs.store._thread.submit(go.wait, 60)
        try:
            waiting = [callers.submit(later, url, body) for _ in range(2)]
            until(lambda: front.jobs.unstored_bytes > 1_400)
            refused = later(url, body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_much_text")
        finally:
            go.set()
        assert [each.result().status_code for each in waiting] == [202, 202]
        assert later(url, body).status_code == 202


def test_an_idempotency_key_finds_a_batch_whose_input_file_was_deleted(tmp_path):
    key = {"extra_headers": {"idempotency-key": "one"}}
    with serving(config_of(tmp_path), fake) as (url, _), client_of(url) as client:
        first = begun(client, lines(chat("a")), **key)
        client.files.delete(first.input_file_id)
        again = {"input_file_id": first.input_file_id, "endpoint": CHAT}
        assert client.batches.create(**again, completion_window="24h", **key).id == first.id
        with pytest.raises(openai.NotFoundError):
            client.batches.create(**again, completion_window="24h")


def test_an_idempotency_key_finds_a_call_although_no_more_jobs_may_open(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "MOST_OPEN", 1)
    executor, key = Permitted(), {"idempotency-key": "one"}
    with serving(config_of(tmp_path), executor.engine) as (url, _):
        try:
            first = later(url, chat("a"), **key).json()
            assert later(url, chat("a"), **key).json()["id"] == first["id"]
            other = later(url, chat("a"))
            assert (other.status_code, other.json()["error"]["code"]) == (429, "too_many_jobs")
        finally:
            executor.permits.release(10_000)


def test_an_upload_cut_off_by_a_shutdown_does_not_count_after_a_restart(tmp_path):
    config = config_of(tmp_path, tenant_bytes=1 << 20)
    with serving(config, fake) as (_, front):
        files = front.jobs.store.files

        def cut_off():
            files.append(files.begin("", 0), 0, b"a" * (1 << 20))

        front.jobs.store._thread.submit(cut_off).result()
    with serving(config, fake) as (url, _), client_of(url) as client:
        client.files.create(file=("a", b"a"), purpose="batch")
