"""Jobs of functions, which outlive their server: real processes, some of them killed. Servers in
threads where only the answers matter.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx2
import msgpack
import numpy as np
import pytest
from openai import BadRequestError

from headway.cli import main
from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.store.database import Database
from headway.store.items.items import NewItem, add_item
from headway.store.jobs import IN_PROGRESS, Job, Jobs
from tests.postgresql import postgresql
from tests.server.functions.served import MODULE
from tests.server.functions.served import serving as threaded
from tests.server.jobs.test_jobs import begun, client_of, ended, lines, results
from tests.server.running_server import until

SHOUT = "/v1/functions/shout"


@contextmanager
def serving(name, store, **settings):
    """`headway serve` in a process of its own; gives its URL and the process. settings: environment
    variables."""
    command = [sys.executable, "-m", "headway", "serve", f"{MODULE}:{name}"]
    command += ["--port", "0", "--jobs", str(store)]
    quiet = {"HEADWAY_LOGS__ACCESS": "false"}  # nobody reads its output after the first lines
    environment = os.environ | quiet | settings | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    try:
        for line in process.stdout:
            if found := re.search(r"ready url=(http://[\d.:]+)", line):
                break
        else:
            pytest.fail("the server did not begin")
        yield found[1], process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs") / "jobs.db"


@pytest.fixture(scope="module")
def url(store):
    with serving("shout", store, HEADWAY_JOBS__LANE="fast") as (url, process):
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.fixture
def client(url):
    with client_of(url) as made:
        yield made


def stored(folder=Path(), where=""):
    """The configuration of a server in a thread whose jobs are in this folder, or at `where`."""
    return ServerConfig(jobs={"store": where or str(folder / "jobs.db")})


def base(url):
    """The server's URL, by that of its function."""
    return url.partition("/v1/")[0]


def test_each_item_of_a_batch_has_the_functions_result_or_its_error(url, client):
    path = "/v1/functions/shout"
    items = [{"text": f"t{i}"} for i in range(100)]
    items[7] = {"text": "bad"}
    items[8] = {"words": "no such field"}
    batch = ended(client, begun(client, lines(*items, url=path), path))
    good, bad = (results(client, each) for each in (batch.output_file_id, batch.error_file_id))
    upper = {name: each["response"]["body"]["upper"] for name, each in good.items()}
    assert upper == {f"c{i}": f"T{i}" for i in range(100) if i not in (7, 8)}
    statuses = {name: each["response"]["status_code"] for name, each in bad.items()}
    assert statuses == {"c7": 500, "c8": 400}
    waiting = httpx2.get(f"{url}/v1/functions").json()["data"][0]["lanes"]
    assert all(each["waiting"] == 0 for each in waiting.values())


def test_job_items_wait_in_the_functions_lane_that_jobs_lane_names(url, client):
    ended(client, begun(client, lines({"text": "hi"}, url=SHOUT), SHOUT))
    text = httpx2.get(f"{url}/metrics").text
    counts = [each for each in text.splitlines() if each.startswith("headway_function_items_total")]
    assert counts and all('lane="fast"' in each for each in counts)


def test_a_later_calls_result_has_the_content_type_of_the_call(url):
    kind = {"content-type": "application/msgpack", "prefer": "respond-async"}
    body = msgpack.packb({"text": "hi"})
    accepted = httpx2.post(f"{url}/v1/functions/shout", content=body, headers=kind)
    assert accepted.status_code == 202
    place = f"{url}{accepted.headers['location']}"
    until(lambda: httpx2.get(place).json()["status"] == "completed")
    assert httpx2.get(place).json()["result"]["body"] is None
    answer = httpx2.get(f"{place}/result")
    assert answer.headers["content-type"] == "application/msgpack"
    assert msgpack.unpackb(answer.content)["upper"] == "HI"


def test_a_later_call_with_an_array_has_an_array_as_its_result(tmp_path):
    with threaded("double", stored(tmp_path)) as (where, _):
        packed = io.BytesIO()
        np.save(packed, np.arange(3.0))
        kind = {"content-type": "application/x-npy", "prefer": "respond-async"}
        accepted = httpx2.post(where, content=packed.getvalue(), headers=kind)
        place = base(where) + accepted.headers["location"]
        until(lambda: httpx2.get(place).json()["status"] == "completed")
        answer = httpx2.get(f"{place}/result").content
        assert np.load(io.BytesIO(answer)).tolist() == [0.0, 2.0, 4.0]


def test_a_later_calls_result_of_5000_digits_is_returned_unchanged(tmp_path):
    """Python refuses to parse an integer of so many digits."""
    with threaded("digits", stored(tmp_path)) as (path, _):
        later = {"prefer": "respond-async"}
        place = base(path) + httpx2.post(path, json=5_000, headers=later).headers["location"]
        answer = httpx2.get(place, headers={"prefer": "wait=20"}, timeout=30)
        assert answer.headers["content-type"] == "application/json"
        about = '"result": {"status_code": 200, "content_type": "application/json", '
        assert about + '"body": 1' + 5_000 * "0" + "}}" in answer.text
        assert httpx2.get(f"{place}/result").text == "1" + 5_000 * "0"


def test_a_streaming_function_takes_later_calls_but_no_batches(tmp_path):
    path = "/v1/functions/count"
    with threaded("count", stored(tmp_path)) as (where, _), client_of(base(where)) as client:
        with pytest.raises(BadRequestError, match="a batch has no streams") as refused:
            begun(client, lines(2, 3, url=path), path)
        assert refused.value.param == "endpoint"
        later = httpx2.post(where, json=2, headers={"prefer": "respond-async"})
        place = base(where) + later.raise_for_status().headers["location"]
        until(lambda: httpx2.get(place).json()["status"] == "completed")
        assert httpx2.get(f"{place}/result").text.endswith("data: [DONE]\n\n")


def moved(client, batch, seen, before):
    """Whether the batch's count of completed items has changed twice since `seen` had `before`
    counts."""
    seen.add(client.batches.retrieve(batch.id).request_counts.completed)
    return len(seen) > before + 1


def test_killed_servers_lose_no_item_and_store_no_result_twice(tmp_path):
    store, path, count = tmp_path / "jobs.db", "/v1/functions/shout", 1_000
    items = [{"text": f"t{i}"} for i in range(count)]
    batch, calls, seen = None, [], set()
    for _ in range(2):
        with serving("shout", store) as (url, process), client_of(url) as client:
            batch = batch or begun(client, lines(*items, url=path), path)
            later = {"prefer": "respond-async"}
            accepted = httpx2.post(f"{url}{path}", json={"text": "now"}, headers=later)
            calls.append(accepted.raise_for_status().json()["id"])
            before = len(seen)

            until(lambda: moved(client, batch, seen, before))  # noqa: B023
            process.kill()
    with serving("shout", store) as (url, process), client_of(url) as client:
        done = ended(client, batch)
        assert done.request_counts.completed == done.request_counts.total == count
        texts = client.files.content(done.output_file_id).text.splitlines()
        found = [json.loads(line)["custom_id"] for line in texts]
        assert len(found) == count and set(found) == {f"c{i}" for i in range(count)}
        for each in calls:
            until(lambda: httpx2.get(f"{url}/v1/jobs/{each}").json()["status"] == "completed")  # noqa: B023
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_call_of_another_function_waits_for_the_server_that_has_it(tmp_path):
    now, body = clock.unix(), NewItem(0, "", b'{"text": "hi"}')
    about = {"window": 60, "created_at": now, "expires_at": now + 60, "total": 1}
    job = Job(f"job_{32 * '0'}", "", "", False, SHOUT, status=IN_PROGRESS, **about)
    with postgresql() as where, threaded("digits", stored(where=where)) as (path, _):
        store = Database(where)
        Jobs(store).add(job, lambda connection: add_item(connection, job, body))
        store.close()
        later, place = {"prefer": "respond-async"}, f"{base(path)}/v1/jobs/{job.id}"
        own = base(path) + httpx2.post(path, json=3, headers=later).headers["location"]
        until(lambda: httpx2.get(own).json()["status"] == "completed")
        assert httpx2.get(place).json()["status"] == "in_progress"
        with threaded("shout", stored(where=where)):
            until(lambda: httpx2.get(place).json()["status"] == "completed")
        assert httpx2.get(place).json()["result"]["body"]["upper"] == "HI"


def test_a_second_server_on_a_sqlite_store_in_use_exits_with_an_error(
    url, store, monkeypatch, capsys
):
    """The first server is a process of its own, the second one the command in this process."""
    command = ["headway", "serve", f"{MODULE}:shout", "--port", "0", "--jobs", str(store)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2 and "is in use by another server" in capsys.readouterr().err
