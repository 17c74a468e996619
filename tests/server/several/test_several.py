"""Two generators, an embedder and two functions in one server: real processes, real clients. The
generators have the fake executor.
"""

import json
import os
import re
import signal
import threading
from collections import Counter

import httpx2
import numpy as np
import openai
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select

from headway.server.config.sections.keys import digest
from headway.store.ledger.check import problems_of
from headway.store.ledger.ledger_tables import REQUESTS, WRITERS
from headway.store.ledger.reading import LedgerReader
from tests.server import served_process
from tests.server.running_server import until
from tests.server.served_process import FAKE_ENGINES
from tests.tiny_encoders import make_encoder, reference
from tests.tiny_encoders import tokenizer as words

MODULE = "tests.server.several.served_functions"
LONG = {"prompt": "The json module", "max_tokens": 700, "ignore_eos": True}
NAMES = ["large", "small", "embedder", "shout", "counting"]


def key(name, **more):
    return {"name": name, "sha256": digest(name).hex(), **more}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server process with all five entries, and the encoder's folder."""
    folder = tmp_path_factory.mktemp("several")
    encoder = make_encoder(folder / "bert", "bert")
    small = {"slots": 2, "context": 256, "restart": 5}
    config = {
        "models": [
            {"name": "large", "memory": 0.05, "aliases": ["gpt"]},
            {"name": "small", "engine": small},
            {"name": "embedder", "path": str(encoder), "dtype": "float32"},
            {"function": f"{MODULE}:shout"},
            {"function": f"{MODULE}:count", "name": "counting"},
        ],
        "engine": {
            "slots": 4,
            "threads": 1,
            "strategy": {"chunk": 32},
            "journal": str(folder / "run.jsonl"),
        },
        "keys": [
            key("all"),
            key("narrow", models=["small", "counting"], lanes=["standard"]),
            key("rare", requests_per_minute=1),
        ],
        "jobs": {"store": str(folder / "jobs.db")},
        "ledger": {"url": str(folder / "jobs.db"), "flush": "100ms"},
    }
    with served_process.served(config, folder, FAKE_ENGINES) as found:
        found.encoder = encoder
        yield found
        drains(found.process, found.url)
    accounts_for_each_engine(folder / "jobs.db")


def drains(process, url):
    """Ends the fixture: what runs on a model and on a function has its end after SIGTERM."""
    asked = {**LONG, "model": "large", "max_tokens": 400, "stream": True}
    said = []
    slow = threading.Thread(target=lambda: said.append(post(url, "/v1/functions/shout", "slow")))
    with httpx2.stream("POST", f"{url}/v1/completions", json=asked, headers=bearer()) as answer:
        events = answer.iter_lines()
        next(events)
        slow.start()
        until(lambda: state(url, "shout")["lanes"] and running(url, "large"))
        process.send_signal(signal.SIGTERM)
        *_, last = [line for line in events if line]
    slow.join(30)
    assert last == "data: [DONE]" and process.wait(60) == 0
    assert said[0].status_code in (200, 503)  # the call came before the signal, or after it


def accounts_for_each_engine(store):
    """After the end: each of the three engines and two functions has its own device time, and all
    sums are exact."""
    reader = LedgerReader(str(store))
    with reader.begin() as connection:
        served = connection.execute(select(REQUESTS.c.writer, REQUESTS.c.model).distinct()).all()
        closed = connection.execute(select(WRITERS.c.closed)).scalars().all()
    assert problems_of(reader) == [] and closed == [True] * 5
    models = {
        writer: {each.model for each in served if each.writer == writer} - {""}
        for writer in {each.writer for each in served}
    }
    assert all(len(each) == 1 for each in models.values()), "each writer has one model"
    assert {"shout"} < set().union(*models.values()) <= set(NAMES)
    reader.close()


def bearer(name="all"):
    return {"authorization": f"Bearer {name}"}


def post(url, path, body, name="all", **headers):
    return httpx2.post(f"{url}{path}", json=body, headers=bearer(name) | headers, timeout=60)


def get(url, path, name="all"):
    return httpx2.get(f"{url}{path}", headers=bearer(name), timeout=60)


def state(url, name):
    return next(f for f in get(url, "/v1/functions").json()["data"] if f["name"] == name)


def running(url, name):
    models = get(url, "/v1/lanes").json()["models"]
    return next(each["running"] for each in models if each["model"] == name)


@pytest.fixture
def client(served):
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="all", max_retries=0) as made:
        yield made


def test_the_model_field_chooses_the_engine(client, served):
    asked = {"prompt": "The json module", "max_tokens": 4, "temperature": 0, "seed": 1}
    large = client.completions.create(model="gpt", **asked)
    small = client.completions.create(model="small@interactive", **asked)
    assert large.model == "gpt" and large.choices[0].text == small.choices[0].text
    default = post(served.url, "/v1/completions", asked).json()
    assert default["model"] == "large"
    too_long = post(served.url, "/v1/completions", {**asked, "model": "small", "max_tokens": 400})
    assert too_long.json()["error"]["code"] == "context_length_exceeded", "its own context"
    text = "the cat sat on the mat"
    made = client.embeddings.create(model="embedder", input=[text], encoding_format="float")
    model = reference(served.encoder)
    with torch.no_grad():
        states = model(**words()(text, return_tensors="pt")).last_hidden_state
    wanted = torch.nn.functional.normalize(states.mean(1), dim=1)[0].numpy()
    np.testing.assert_allclose(made.data[0].embedding, wanted, atol=1e-4)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="embedder", **asked)


def test_unknown_models_and_models_that_a_key_may_not_use_are_refused(client, served):
    with pytest.raises(openai.NotFoundError, match="there is large, gpt, small, embedder") as error:
        client.completions.create(model="other", prompt="x")
    assert error.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="is a function: POST /v1/functions/shout"):
        client.completions.create(model="shout", prompt="x")
    narrow = post(served.url, "/v1/completions", {"model": "large", "prompt": "x"}, "narrow")
    assert narrow.status_code == 404
    assert narrow.json()["error"]["message"] == "there is no model 'large'; there is small"
    body = {"prompt": "x", "max_tokens": 1}
    assert post(served.url, "/v1/completions", body, "narrow").json()["model"] == "small"
    assert post(served.url, "/v1/functions/shout", "a", "narrow").status_code == 404
    listed = [each["id"] for each in get(served.url, "/v1/models", "narrow").json()["data"]]
    assert listed == ["small", "small@standard"]
    functions = get(served.url, "/v1/functions", "narrow").json()["data"]
    assert [each["name"] for each in functions] == ["counting"]
    shown = get(served.url, "/v1/config/effective", "narrow").json()
    assert [each["name"] for each in shown["models"]] == ["small", "counting"]
    assert shown["models"][0]["engine"]["slots"] == 2 and "path" not in shown["models"][0]


def test_functions_beside_models_answer_and_refuse_calls_and_print_to_the_log(served):
    assert post(served.url, "/v1/functions/shout", "hi").json() == "HI"
    results = post(served.url, "/v1/functions/shout/batch", ["a", "bad"]).json()["results"]
    assert results[0] == {"result": "A"} and "not here" in results[1]["error"]["message"]
    wrong = post(served.url, "/v1/functions/shout", 5).json()["error"]
    assert wrong["code"] == "invalid_item"
    events = post(served.url, "/v1/functions/counting", 2).text.split("\n\n")
    assert events == ["data: 0", "data: 1", "data: [DONE]", ""]
    no_lane = {"x-headway-lane": "fast"}
    assert post(served.url, "/v1/functions/shout", "a", **no_lane).status_code == 400
    late = post(served.url, "/v1/functions/shout", "slow", **{"x-headway-timeout-ms": "30"})
    assert late.status_code == 408
    over = {"x-slo-ttft-ms": "0.001"}
    assert post(served.url, "/v1/functions/shout", "a", **over).status_code == 408
    superseding = {"x-headway-supersede": "k"}
    assert post(served.url, "/v1/functions/shout", "a", **superseding).status_code == 400
    expected = {"x-headway-expected-tokens": "x"}
    assert post(served.url, "/v1/functions/shout", "a", **expected).status_code == 400
    assert state(served.url, "shout")["lanes"]["interactive"]["budget"] == 0.5
    said = [line for line in served.lines if "do not apply" in line["event"]]
    assert "shout: its own lanes (fast) do not apply" in said[0]["event"]
    post(served.url, "/v1/functions/shout", "print")
    until(lambda: any(line["event"] == "said by the function" for line in served.lines))
    (line,) = [line for line in served.lines if line["event"] == "said by the function"]
    assert (line["source"], line["model"]) == ("function", "shout")
    paths = get(served.url, "/openapi.json").json()["paths"]
    assert paths["/v1/functions/shout"]["post"]["requestBody"]["content"]["application/json"] == {
        "schema": {"type": "string"}
    }


def test_a_generator_beside_models_takes_no_lists(served):
    path = "/v1/functions/counting/batch"
    assert path not in get(served.url, "/openapi.json").json()["paths"]
    answer = post(served.url, path, 2)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert post(served.url, path, [2]).status_code == 404


def test_the_live_page_shows_functions_beside_models(served):
    before = items_on_page(get(served.url, "/dashboard").text, "shout")
    assert post(served.url, "/v1/functions/shout/batch", ["a", "b", "c"]).status_code == 200

    def counted():  # a view is shown again for a second
        return items_on_page(get(served.url, "/dashboard/live").text, "shout") == before + 3

    until(counted)
    page = get(served.url, "/dashboard").text
    assert re.findall(r'<h3 class="model">(\w+)</h3>', page)[:5] == NAMES
    narrow = get(served.url, "/dashboard", "narrow").text
    assert {*re.findall(r'<h3 class="model">(\w+)</h3>', narrow)} == {"small", "counting"}
    lanes = [re.sub("<[^>]*>", "", each) for each in lane_rows(narrow, "counting")]
    assert len(lanes) == 1 and lanes[0].startswith("standard"), "only its own lane"


def lane_rows(page, name):
    table = page.partition(f'<h3 class="model">{name}</h3>')[2].partition("</table>")[0]
    return re.findall(r'<tr id="lanes-.*?</tr>', table, re.DOTALL)


def items_on_page(page, name):
    """How many items have ended in the function's lane `standard`."""
    (row,) = [row for row in lane_rows(page, name) if "standard</th>" in row]
    return int(re.findall(r"<td[^>]*>([^<]*)</td>", row)[1])


def test_health_lanes_metrics_journals_and_logs_name_the_model(served):
    post(served.url, "/v1/completions", {"model": "small", "prompt": "x", "max_tokens": 1})
    post(served.url, "/v1/functions/shout", "hi")
    assert [post(served.url, "/tokenize", {"prompt": "a"}, "rare").status_code for _ in "12"] == [
        *(200, 429)
    ]
    health = get(served.url, "/health").json()
    assert health == {"status": "ok", "models": dict.fromkeys(NAMES, "ready")}
    lanes = get(served.url, "/v1/lanes").json()
    assert [each["model"] for each in lanes["models"]] == NAMES[:3]
    assert Counter(each["id"] for each in lanes["data"])["standard"] == 3
    text = get(served.url, "/metrics").text
    folder = served.encoder.parent
    assert all(list(folder.glob(f"run-{name}-*.jsonl")) for name in NAMES[:3]), "their journals"
    heads = Counter(line.split()[2] for line in text.splitlines() if line.startswith("# TYPE"))
    assert set(heads.values()) == {1}, "each family is written once"
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    good = {
        sample.labels["model_name"]: sample.value
        for sample in found["headway_requests"]
        if sample.labels["lane"] == "standard" and sample.labels["outcome"] == "good"
    }
    assert set(good) == {"large", "small", "embedder"} and good["small"] >= 1
    (refused,) = [each for each in found["headway_refusals"] if each.labels["model_name"] == ""]
    assert (refused.labels["reason"], refused.value) == ("rate_limit_exceeded", 1)
    ended = {each.labels["function"] for each in found["headway_function_items"]}
    assert "shout" in ended
    until(lambda: any(line.get("model") == "shout" for line in served.lines))
    until(lambda: ("small", "standard") in logged(served.lines))


def logged(lines):
    """The models and lanes of the requests in the log."""
    return {(line.get("model"), line.get("lane")) for line in lines if line["event"] == "request"}


def test_jobs_run_on_a_generator_an_embedder_and_a_function(served, client):
    later = {"prefer": "respond-async"}
    asked = {"model": "small", "prompt": "x", "max_tokens": 2}
    sent = [
        post(served.url, "/v1/completions", asked, **later),
        post(served.url, "/v1/embeddings", {"model": "embedder", "input": "a cat"}, **later),
        post(served.url, "/v1/functions/shout", "hi", **later),
    ]
    assert [each.status_code for each in sent] == [202] * 3
    first, second, third = [
        httpx2.get(
            f"{served.url}{each.headers['location']}/result",
            headers=bearer() | {"prefer": "wait=20"},
            timeout=60,
        ).json()
        for each in sent
    ]
    assert first["model"] == "small" and len(second["data"]) == 1 and third == "HI"


def test_a_batch_for_a_function_that_streams_is_refused(served):
    asked = {"input_file_id": "file-none", "completion_window": "24h"}
    path = "/v1/functions/counting"
    refused = post(served.url, "/v1/batches", {**asked, "endpoint": path})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "endpoint")
    assert "a batch has no streams" in refused.text


def test_a_killed_engine_restarts_while_the_others_keep_answering(served):
    pid = served.said["engine_pids"]["small"]
    asked = {**LONG, "model": "large", "stream": True}
    with httpx2.stream(
        "POST", f"{served.url}/v1/completions", json=asked, headers=bearer(), timeout=60
    ) as answer:
        events = answer.iter_lines()
        next(events)
        os.kill(pid, signal.SIGKILL)
        until(lambda: get(served.url, "/health").json()["models"]["small"] == "loading")
        assert get(served.url, "/ready").status_code == 200
        down = post(served.url, "/v1/completions", {"model": "small", "prompt": "x"})
        assert down.status_code == 503 and "killed by SIGKILL" in down.text
        assert int(down.headers["retry-after"]) >= 1
        for path, body in (
            ("/v1/completions", {"model": "large", "prompt": "x", "max_tokens": 1}),
            ("/v1/embeddings", {"model": "embedder", "input": "a"}),
            ("/v1/functions/shout", "a"),
        ):
            assert post(served.url, path, body).status_code == 200
        *_, last = [line for line in events if line]
    assert last == "data: [DONE]"
    until(lambda: get(served.url, "/health").json()["models"]["small"] == "ready")
    again = post(served.url, "/v1/completions", {"model": "small", "prompt": "x", "max_tokens": 1})
    assert again.status_code == 200
    faults = [line for line in served.lines if line["event"].startswith("engine ")]
    assert {line["model"] for line in faults} == {"small"}


def test_a_function_that_exits_restarts_while_the_others_keep_answering(served):
    asked = {"model": "large", "prompt": "x", "max_tokens": 1}
    died = post(served.url, "/v1/functions/shout", "exit")
    assert (died.status_code, died.json()["error"]["code"]) == (503, "engine_down")
    assert post(served.url, "/v1/completions", asked).status_code == 200
    assert post(served.url, "/v1/functions/counting", 1).status_code == 200
    until(lambda: state(served.url, "shout")["state"] == "ready")
    named = {"x-request-id": "after", "x-headway-workflow": "order-1"}
    assert post(served.url, "/v1/functions/shout", "a", **named).json() == "A"
    lost = get(served.url, f"/v1/requests/{died.headers['x-request-id']}").json()
    assert (lost["operation"], lost["code"]) == ("function", "engine_down")
    (item,) = lost["choices"]
    assert item["finish"] == "error"
    assert [each["stage"] for each in item["stages"] if each["stage"] != "sending"] == ["lost"]
    explained = get(served.url, "/v1/requests/after").json()
    (item,) = explained["choices"]
    assert (explained["model"], explained["lane"]) == ("shout", "standard")
    assert sum(each["ns"] for each in item["stages"]) == item["wall_ns"]
    assert item["device_ns"] > 0 and item["good"]
    labelled = {"workflow": "order-1", "label": "resolved"}
    assert post(served.url, "/v1/outcomes", labelled).status_code == 200


def test_a_stream_whose_process_dies_ends_with_the_error(served):
    pid = served.said["engine_pids"]["counting"]
    named = bearer() | {"x-request-id": "cut short"}
    with httpx2.stream(
        "POST", f"{served.url}/v1/functions/counting", json=10**9, headers=named, timeout=60
    ) as answer:
        events = answer.iter_lines()
        assert (answer.status_code, next(events)) == (200, "data: 0")
        os.kill(pid, signal.SIGKILL)
        *_, error, done = [line for line in events if line]
    told = json.loads(error.removeprefix("data: "))["error"]
    assert (told["code"], done) == ("engine_down", "data: [DONE]")
    assert "killed by SIGKILL" in told["message"]
    until(lambda: [line for line in served.lines if line.get("id") == "cut short"])
    (line,) = [line for line in served.lines if line.get("id") == "cut short"]
    assert (line["status"], line["code"]) == (200, "engine_down")
    assert not [line for line in served.lines if line["event"] == "fault"]
    until(lambda: state(served.url, "counting")["state"] == "ready")


def test_a_function_whose_engine_has_failed_answers_again(served):
    failed = post(served.url, "/v1/functions/shout", "fault")
    assert (failed.status_code, failed.json()["error"]["code"]) == (503, "engine_down")
    until(lambda: post(served.url, "/v1/functions/shout", "a").status_code == 200)
    assert post(served.url, "/v1/functions/counting", 1).status_code == 200
