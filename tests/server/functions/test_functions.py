"""Functions behind HTTP: a real server on loopback, real clients."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Optional
from uuid import UUID

import httpx2
import msgpack
import numpy as np
import pytest
import schemathesis
from pydantic import BaseModel, ConfigDict, Field

from headway.cli import main
from headway.errors import SettingError
from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import digest
from headway.server.engine.handle import EngineState
from headway.server.functions import routes
from headway.server.functions.codecs import JSON as JSON_KIND
from headway.server.functions.codecs import MSGPACK, NPY, checked, decode, encode
from headway.server.functions.service import FunctionService
from headway.server.functions.target import find, made_target, names_a_function
from headway.server.functions.watched import WatchedFunction
from headway.server.observe.access import AccessLog
from headway.server.observe.logs import logger
from headway.server.protocol.problem import Problem
from tests.server.functions import functions_to_serve
from tests.server.functions.served import MODULE, serving
from tests.server.running_server import until

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def shout():
    with serving("shout") as (url, _):
        yield url


def post(url, body, status=200, **headers):
    answer = httpx2.post(url, content=json.dumps(body), headers=JSON | headers, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else answer.json()["error"]


def test_a_call_returns_the_result_of_its_item(shout):
    assert post(shout, {"text": "hi", "times": 2}) == {"upper": "HIHI", "together": 1}


def test_items_of_concurrent_clients_are_batched_together(shout):
    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(lambda i: post(shout, {"text": f"t{i}"}), range(64)))
    assert [each["upper"] for each in said] == [f"T{i}" for i in range(64)]
    assert max(each["together"] for each in said) > 1


def test_a_failing_item_of_a_list_does_not_fail_the_others(shout):
    items = [{"text": "a"}, {"text": "bad"}, {"text": "c"}]
    first, second, third = post(f"{shout}/batch", items)["results"]
    assert (first["result"]["upper"], third["result"]["upper"]) == ("A", "C")
    assert second["error"]["message"] == "shout failed: ValueError: 'bad' is not said here"
    error = post(shout, {"text": "bad"}, 500)
    assert (error["code"], error["type"]) == ("function_error", "server_error")
    assert (
        post(f"{shout}/batch", {"text": "a"}, 400)["message"] == "the body must be a list of items"
    )
    long = post(f"{shout}/batch", [{"text": f"t{i}"} for i in range(500)])["results"]
    assert [each["result"]["upper"] for each in long] == [f"T{i}" for i in range(500)]
    many = post(f"{shout}/batch", [{"text": "a"}] * 2_049, 400)
    assert many["message"] == "2049 items, where 2048 are the most of one call"


def test_a_result_that_cannot_be_encoded_fails_only_its_own_item():
    with serving("strange_at_seven") as (url, _):
        first, second, third = post(f"{url}/batch", [6, 7, 8])["results"]
    assert (first, third) == ({"result": 6}, {"result": 8})
    assert second["error"]["code"] == "function_error"
    assert "returned what is no application/json" in second["error"]["message"]


@pytest.mark.parametrize(
    "body, param",
    [
        ({"txt": "a"}, "text"),
        ({"text": 5}, "text"),
        ({"text": "a", "where": {"city": 1}}, "where.city"),
        ("a", None),
        (None, None),
    ],
)
def test_an_invalid_item_is_refused_and_its_field_named(shout, body, param):
    error = post(shout, body, 400)
    assert (error["param"], error["code"]) == (param, "invalid_item")
    if param:
        assert post(f"{shout}/batch", [{"text": "a"}, body], 400)["param"] == f"1.{param}"


def test_a_functions_lanes_are_listed_and_unknown_lanes_and_paths_refused(shout):
    assert post(shout, {"text": "a"}, **{"x-headway-lane": "slow"})
    for path, body in ((shout, {"text": "a"}), (f"{shout}/batch", [{"text": "a"}])):
        error = post(path, body, 400, **{"x-headway-lane": "other"})
        assert error["message"] == "there is no lane 'other'; there are fast, slow"
    assert post(f"{shout}s", {}, 404)["code"] == "unknown_url"
    base = shout.rpartition("/")[0]
    (told,) = httpx2.get(base, timeout=60).json()["data"]
    assert (told["name"], told["about"]) == ("shout", "Texts in capitals.")
    assert told["lanes"] == {
        "fast": {"waiting": 0, "budget": 5.0},
        "slow": {"waiting": 0, "budget": None},
    }


def test_malformed_compressed_and_oversized_bodies_are_refused(shout):
    for content, kind, status in (
        (b"{", "application/json", 400),
        (b"\xc1", "application/msgpack", 400),
        (b"x", "application/x-npy", 400),
        (b"{}", "text/plain", 415),
        (b"", "application/json", 400),
    ):
        answer = httpx2.post(shout, content=content, headers={"content-type": kind}, timeout=60)
        assert answer.status_code == status, (kind, answer.text)
    packed = httpx2.post(shout, content=b"{}", headers=JSON | {"content-encoding": "gzip"})
    assert packed.status_code == 415 and "'gzip'" in packed.text
    config = ServerConfig.load(None, {"server": {"limits": {"body_bytes": 100}}})
    with serving("shout", config) as (url, _):
        assert post(url, {"text": "a" * 200}, 413)["code"] == "body_too_large"


def test_openapi_json_has_the_types_of_the_functions_hints(shout):
    document = httpx2.get(shout.partition("/v1")[0] + "/openapi.json", timeout=60).json()
    assert all(each.ok() for each in schemathesis.openapi.from_dict(document).get_all_operations())
    operation = document["paths"]["/v1/functions/shout"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == {"text", "times", "where"}
    said = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert set(said["properties"]) == {"upper", "together"}
    assert {"shout.item.Where", "Error"} == set(document["components"]["schemas"])


def test_classes_of_one_name_are_documented_side_by_side():
    class Where(BaseModel):
        country: str = "none"

    def function(items):
        return items

    hint = list[dict[str, Where]]
    function.__annotations__ = {"items": hint, "return": hint}
    target = made_target("function", function, {})
    models = target.models() | find(f"{MODULE}:shout").models()
    assert {name: each.get("required") for name, each in models.items()} == {
        "function.item.Where": None,
        "function.result.Where": None,
        "shout.item.Where": ["city"],
    }
    for part, schema in zip(("item", "result"), target.schemas, strict=True):
        referred = schema["additionalProperties"]["$ref"].rpartition("/")[2]
        assert referred == f"function.{part}.Where" and referred in models


def test_the_items_type_is_that_of_the_first_parameter():
    assert find(f"{MODULE}:sized").schemas == ({}, {"type": "string"})
    assert find(f"{MODULE}:add_three").schemas[0] == {"type": "integer"}


def test_the_constraints_of_an_annotated_type_are_checked_and_documented():
    schema = find(f"{MODULE}:square").schemas[0]
    assert (schema["minimum"], schema["maximum"]) == (-9, 9)
    with serving("square") as (url, _):
        assert post(url, 9) == 81
        error = post(url, 10, 400)
        assert error["message"] == "the item: Input should be less than or equal to 9"


def test_metrics_count_the_calls_and_the_items_of_a_function(shout):
    post(shout, {"text": "a"})
    text = httpx2.get(shout.partition("/v1")[0] + "/metrics", timeout=60).text
    values = dict(re.findall(r"^(headway_function_\w+)\{.*\} (\S+)$", text, re.MULTILINE))
    items, calls = (
        float(values[f"headway_function_call_{name}"]) for name in ("items_sum", "seconds_count")
    )
    assert items >= calls >= 1


class Day(BaseModel):
    day: date = Field(alias="the-day")


@dataclass
class Trip:
    days: set[date]
    first: Day
    weights: np.ndarray


def test_a_result_in_msgpack_has_the_names_and_values_that_it_has_in_json():
    first = Day(**{"the-day": date(2026, 1, 2)})
    for value in (first, Trip({first.day}, first, np.ones(2)), [first.day], {"id": UUID(int=7)}):
        packed, said = encode(value, MSGPACK), encode(value, JSON_KIND)
        assert decode(packed, MSGPACK) == decode(said, JSON_KIND)
    with pytest.raises(TypeError, match="a object has no form in msgpack"):
        encode(object(), MSGPACK)


def test_arrays_may_be_json_msgpack_or_npy_and_unsafe_ones_are_refused():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    file = io.BytesIO()
    np.save(file, array)
    form = {
        b"nd": True,
        b"type": array.dtype.str,
        b"kind": b"",
        b"shape": array.shape,
        b"data": array.tobytes(),
    }
    with serving("double") as (url, _):
        assert post(url, array.tolist()) == (2 * array).tolist()
        npy, packed = {"content-type": "application/x-npy"}, {"content-type": "application/msgpack"}
        answer = httpx2.post(url, content=file.getvalue(), headers=npy, timeout=60)
        found = np.load(io.BytesIO(answer.content))
        np.testing.assert_array_equal(found, 2 * array)
        assert found.dtype == np.float32
        answer = httpx2.post(url, content=msgpack.packb(form), headers=packed, timeout=60)
        said = msgpack.unpackb(answer.content)
        assert (said[b"type"], said[b"shape"]) == ("<f4", [2, 3])
        np.testing.assert_array_equal(np.frombuffer(said[b"data"], "<f4"), 2 * array.ravel())
        headers = npy | {"accept": "application/json"}
        answer = httpx2.post(url, content=file.getvalue(), headers=headers, timeout=60)
        assert answer.json() == (2 * array).tolist()
        both = post(f"{url}/batch", [[1, 2], [[3]]])
        assert both == {"results": [{"result": [2, 4]}, {"result": [[6]]}]}
        assert "no array" in post(url, [[1], [2, 3]], 400)["message"]
        assert post(url, ["a"], 400)["message"] == "the item is no array of numbers"
        nan = httpx2.post(url, content=b"[NaN]", headers=JSON, timeout=60)
        assert nan.json() == [None], "JSON has no such number"
        pickled = io.BytesIO()
        np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
        answer = httpx2.post(url, content=pickled.getvalue(), headers=npy, timeout=60)
        assert answer.status_code == 400
        archive = io.BytesIO()
        np.savez(archive, array)
        answer = httpx2.post(url, content=archive.getvalue(), headers=npy, timeout=60)
        assert answer.status_code == 400
        evil = form | {b"type": "|O"}
        answer = httpx2.post(url, content=msgpack.packb(evil), headers=packed, timeout=60)
        assert answer.status_code == 400


def test_results_of_a_list_in_numpys_format_are_refused_before_the_function_is_called():
    with serving("held") as (url, _):
        error = post(f"{url}/batch", [1], 400, accept=NPY)
        paths = httpx2.get(url.partition("/v1")[0] + "/openapi.json", timeout=60).json()["paths"]
    assert error["param"] == "accept" and f"cannot be {NPY}" in error["message"]
    one, several = [
        paths[path]["post"]["requestBody"]["content"]
        for path in ("/v1/functions/held", "/v1/functions/held/batch")
    ]
    assert {*one} - {*several} == {NPY}


def npy(shape, kind="<f8", data=b"", fortran=False):
    out = io.BytesIO()
    about = {"descr": kind, "fortran_order": fortran, "shape": shape}
    np.lib.format.write_array_header_2_0(out, about)
    return out.getvalue() + data


def nd(shape, kind="<f8", data=b""):
    return msgpack.packb({"nd": True, "type": kind, "shape": shape, "data": data})


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(24, dtype="<i2").reshape(2, 3, 4)),
        np.zeros((0, 768), "<f4"),
        np.zeros((3, 0)),
        np.float32(2.5),
        np.array(["a", "bc"]),
        np.array([True, False]),
        np.array(["2026-01-01"], "M8[D]"),
    ],
)
def test_an_array_is_read_as_it_was_written(array):
    file = io.BytesIO()
    np.save(file, array)
    packed = nd(list(np.shape(array)), array.dtype.str, array.tobytes())
    for found in decode(file.getvalue(), NPY), decode(packed, MSGPACK):
        assert found.dtype == array.dtype and found.shape == np.shape(array)
        np.testing.assert_array_equal(found, array)
        assert found.flags.writeable


@pytest.mark.parametrize(
    "body, kind, said",
    [
        (npy((8_000_000, 0)), NPY, "without items is too large"),
        (npy((0, 10**17)), NPY, "without items is too large"),
        (npy((10**11,)), NPY, "has 800000000000 bytes, and the body 0"),
        (npy((2,), data=b"x" * 15), NPY, "has 16 bytes, and the body 15"),
        (npy((10**9,), "|V0"), NPY, "numbers, texts or times"),
        (npy((1,), [("a", "<f8")], b"x" * 8), NPY, "numbers, texts or times"),
        (npy((1,) * 65, data=b"x" * 8), NPY, "at most 64 lengths"),
        (npy((10**17,) * 60), NPY, "Header info length"),
        (npy((1,)).replace(b"NUMPY\2", b"NUMPY\3"), NPY, "version 3.0"),
        (nd([8_000_000, 0]), MSGPACK, "without items is too large"),
        (nd([2**63] * 100_000), MSGPACK, "at most 64 lengths"),
        (nd([-1], data=b"x" * 8), MSGPACK, "at most 64 lengths"),
        (nd([0], "i4," * 30_000 + "i4"), MSGPACK, "at most 32 characters"),
        (nd([0], [["a", "<f8"]]), MSGPACK, "at most 32 characters"),
        (nd([0], "2,i4"), MSGPACK, "numbers, texts or times"),
    ],
)
def test_an_array_that_claims_more_than_its_body_has_is_refused(body, kind, said):
    with pytest.raises(Problem, match=said) as refused:
        decode(body, kind)
    assert (refused.value.status, refused.value.code) == (400, "invalid_body")


def test_a_generators_items_are_streamed_as_server_sent_events():
    with serving("count") as (url, _):
        with httpx2.stream("POST", url, content=b"3", headers=JSON, timeout=60) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = [line for line in answer.iter_lines() if line]
        assert lines == ["data: 0", "data: 1", "data: 2", "data: [DONE]"]
        *_, error, done = httpx2.post(url, content=b"9", headers=JSON, timeout=60).text.split(
            "\n\n"
        )[:-1]
        assert "RuntimeError: seven is too many" in error and done == "data: [DONE]"
        none = httpx2.post(url, content=b"0", headers=JSON, timeout=60)
        assert none.text == "data: [DONE]\n\n"
        assert httpx2.post(f"{url}/batch", content=b"[1]", headers=JSON).status_code == 404


@pytest.mark.parametrize(
    "name, item, first, rest",
    [
        ("pausing", b"3", "data: 3", ["data: [DONE]"]),
        ("late", b"3", ": waiting", ["data: 3", "data: [DONE]"]),
        ("late", b"7", ": waiting", ["RuntimeError: seven is too many", "data: [DONE]"]),
    ],
)
def test_a_silent_stream_has_comments_that_keep_it_open(monkeypatch, name, item, first, rest):
    monkeypatch.setattr(routes, "KEEPALIVE", 0.05)
    with serving(name) as (url, service):
        with httpx2.stream("POST", url, content=item, headers=JSON, timeout=60) as answer:
            assert answer.status_code == 200
            lines = (line for line in answer.iter_lines() if line)
            while next(lines) != first:
                pass
            assert [next(lines), next(lines)] == [": waiting"] * 2
            functions_to_serve.HELD.release()
            left = [line for line in lines if line != ": waiting"]
        assert len(left) == len(rest) and all(map(str.__contains__, left, rest))
        until(lambda: not service.open)


def test_a_client_that_leaves_before_a_silent_stream_begins_frees_its_item():
    functions_to_serve.CALLED.clear()
    with serving("late") as (url, service):
        with socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0]))) as gone:
            gone.sendall(
                b"POST /v1/functions/late HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                b"content-type: application/json\r\ncontent-length: 1\r\n\r\n3"
            )
            until(functions_to_serve.CALLED.is_set)
            assert service.open
        until(lambda: not service.open)
        functions_to_serve.HELD.release()
        until(lambda: not service.batcher._items)


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_fault_of_the_server():
    lines = []
    log = logger("info", lines.append)
    with serving("shout", around=lambda app: AccessLog(app, log)) as (url, service):
        with socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0]))) as gone:
            gone.sendall(
                b"POST /v1/functions/shout HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                b"content-type: application/json\r\ncontent-length: 9\r\n\r\n{"
            )
            until(lambda: service.open)
        until(lambda: lines)
        assert not service.open
    (line,) = lines
    assert (line["event"], line["status"], line["code"]) == ("request", 499, "client_gone")


def test_a_client_that_stops_reading_its_stream_is_cut_off():
    lines = []
    log = logger("info", lines.append)
    with serving("pouring", around=lambda app: AccessLog(app, log)) as (url, service):
        with socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0]))) as idle:
            idle.settimeout(30)
            idle.sendall(
                b"POST /v1/functions/pouring HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                b"content-type: application/json\r\ncontent-length: 1\r\n\r\n7"
            )
            assert idle.recv(12) == b"HTTP/1.1 200"
            until(lambda: lines and not service.open and not service.batcher._items)
            said = b"".join(iter(lambda: idle.recv(1 << 20), b""))
            assert said and not said.endswith(b"0\r\n\r\n"), "the answer has no end"
        with httpx2.stream("POST", url, content=b"8", headers=JSON, timeout=60) as answer:
            assert next(answer.iter_lines()).startswith('data: "xxx'), "the function is free again"
    assert (lines[0]["status"], lines[0]["code"]) == (200, "slow_reader")


def test_the_live_page_counts_items_and_refusals():
    with serving("held") as (url, service), ThreadPoolExecutor(16) as pool:
        first = pool.submit(post, url, 0)
        until(lambda: service.batcher._items and not service.batcher._waiting._counts["default"])
        waiting = [pool.submit(post, url, i) for i in range(1, 5)]
        until(lambda: service.batcher._waiting._counts["default"] == 4)
        assert httpx2.post(url, content=b"9", headers=JSON, timeout=60).status_code == 429
        functions_to_serve.HELD.release(5)
        assert [each.result() for each in (first, *waiting)] == [0, 1, 2, 3, 4]
        page = httpx2.get(f"{url.partition('/v1')[0]}/dashboard", timeout=60).text
    row = page.partition('<tr id="lanes-0-0">')[2].partition("</tr>")[0]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", row)
    assert "default</th>" in row and cells[1] == "6" and cells[7] == "1"
    assert 'id="slow"' not in page and 'id="time"' in page


def test_items_that_are_refused_late_or_abandoned_never_reach_the_function():
    with serving("held") as (url, service), ThreadPoolExecutor(16) as pool:
        first = pool.submit(post, url, 0)
        until(lambda: service.batcher._items and not service.batcher._waiting._counts["default"])
        waiting = [pool.submit(post, url, i) for i in range(1, 5)]
        until(lambda: service.batcher._waiting._counts["default"] == 4)
        refused = httpx2.post(url, content=b"9", headers=JSON, timeout=60)
        assert refused.status_code == 429 and refused.json()["error"]["code"] == "lane_full"
        assert int(refused.headers["retry-after"]) >= 1
        functions_to_serve.HELD.release(5)
        assert [each.result(30) for each in [first, *waiting]] == list(range(5))
        blocking = pool.submit(post, url, 5)
        until(lambda: service.batcher._items and not service.batcher._waiting._counts["default"])
        late = httpx2.post(
            url, content=b"6", headers=JSON | {"x-headway-timeout-ms": "50"}, timeout=60
        )
        assert (late.status_code, late.json()["error"]["code"]) == (408, "deadline_exceeded")
        with socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0]))) as gone:
            gone.sendall(
                b"POST /v1/functions/held HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                b"content-type: application/json\r\ncontent-length: 1\r\n\r\n7"
            )
            until(lambda: 7 in [each.value for each in [*service.batcher._items.values()]])
        until(lambda: service.open == 1)
        functions_to_serve.HELD.release(1)
        assert blocking.result(30) == 5
        until(lambda: not service.batcher._items)
        functions_to_serve.HELD.release(1)
        assert post(url, 8) == 8, "nobody called the function with 6 or 7"


def test_the_ttft_header_bounds_an_items_wait_until_its_call_begins():
    """An item whose call has begun has no such limit. The header is none of the front's own time
    limits."""
    budget = {"x-slo-ttft-ms": "1000"}

    def wait():
        now = clock.now()
        until(lambda: clock.now() > now + 10**9)

    with serving("held") as (url, service), ThreadPoolExecutor(16) as pool:
        blocking = pool.submit(post, url, 5, **budget)
        until(lambda: service.batcher._items and not service.batcher._waiting._counts["default"])
        waiting = pool.submit(post, url, 6, 408, **budget)
        until(lambda: service.batcher._waiting._counts["default"])
        wait()
        functions_to_serve.HELD.release(1)
        assert waiting.result(30)["code"] == "deadline_exceeded"
        assert blocking.result(30) == 5
        functions_to_serve.HELD.release(1)
        assert post(url, 7) == 7, "nobody called the function with 6"
        listed = pool.submit(post, f"{url}/batch", [1, 2, 3, 4, 5, 6], **budget)
        until(lambda: service.batcher._items)
        wait()
        functions_to_serve.HELD.release(6)
        late = listed.result(30)["results"][2:]  # two are under way at a time
        assert [each["error"]["code"] for each in late] == ["deadline_exceeded"] * 4
        while functions_to_serve.HELD.acquire(blocking=False):
            pass
    with serving("pausing") as (url, _):
        asked = {"content": b"3", "headers": JSON | budget, "timeout": 60}
        with httpx2.stream("POST", url, **asked) as answer:
            pieces = answer.iter_text()
            assert next(pieces) == "data: 3\n\n"
            wait()
            functions_to_serve.HELD.release(1)
            assert "".join(pieces) == "data: [DONE]\n\n"


def test_a_functions_call_cannot_have_the_supersede_header(shout):
    for path, body in ((shout, {"text": "a"}), (f"{shout}/batch", [{"text": "a"}])):
        error = post(path, body, 400, **{"x-headway-supersede": "k"})
        assert error["message"] == "a function's call cannot have x-headway-supersede"
        assert (error["param"], error["code"]) == ("x-headway-supersede", "not_supported")


def test_a_function_that_exits_fails_its_item_alone():
    with serving("leave") as (url, _):
        error = post(url, "exit", 500)
        assert (
            error["message"] == "leave failed: RuntimeError: the function failed with SystemExit(3)"
        )
        assert post(url, "stay") == "stay"


def test_a_functions_own_errors_of_headway_are_not_its_clients():
    with serving("misused") as (url, _):
        for kind in ("setting", "refused", "late", "down"):
            own, error = functions_to_serve.OWN[kind], post(url, kind, 500)
            assert error["code"] == "function_error"
            assert error["message"] == f"misused failed: {type(own).__name__}: {own}"
            assert post(f"{url}/batch", [kind])["results"][0]["error"] == error
        assert post(url, "item", 400)["code"] == "invalid_item"
        metrics = httpx2.get(re.sub("/v1/.*", "/metrics", url), timeout=60).text
        assert 'headway_function_refused_total{function="misused"} 0.0' in metrics
    with serving("misused_stream") as (url, _):
        told = httpx2.post(url, content=b'"refused"', headers=JSON, timeout=60).text
        assert "misused_stream failed: RefusedError: the line of another" in told


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_probes_answer_503_when_the_engine_is_down():
    def broken(calls, items):
        if items:
            raise OSError("no room")

    with serving("shout") as (url, service):
        base = url.partition("/v1")[0]
        assert httpx2.get(f"{base}/health").status_code == 200
        assert httpx2.get(f"{base}/ready").status_code == 200
        watched = WatchedFunction(service)
        assert watched.state is EngineState.READY
        service.batcher._engine._rows = broken
        for _ in range(2):
            error = post(url, {"text": "a"}, 503)
            assert (error["code"], error["message"]) == (
                "engine_down",
                "the engine is down: no room",
            )
        for path in ("health", "ready"):
            answer = httpx2.get(f"{base}/{path}")
            assert answer.status_code == 503
            assert answer.json()["error"]["message"] == "the engine is down: no room"
        assert watched.state is EngineState.DOWN


def test_async_functions_and_callable_objects_can_be_served():
    with serving("slowly") as (url, _):
        assert post(url, 5) == 2.5
    with serving("add_three") as (url, _):
        assert post(url, 5) == 8
        assert post(url, "a", 400)["code"] == "invalid_item"
    with serving("strange") as (url, _):
        assert "returned what is no application/json" in post(url, 1, 500)["message"]


@pytest.mark.parametrize(
    "name, why",
    [
        (f"{MODULE}:shuot", "has no 'shuot'; did you mean shout"),
        (f"{MODULE}:number", "is a int, and not a function of a list"),
        (f"{MODULE}:Adder", "is a type, and not a function of a list"),
        (f"{MODULE}:text_of", "must take and return lists"),
        (f"{MODULE}:sharing", "must take and return lists"),
        (f"{MODULE}:broken", "the hints of broken make no sense"),
        (f"{MODULE}:adders", "adders: no JSON schema describes .*Callable"),
        (f"{MODULE}:called", "called: no JSON can be read as .*Callable"),
        ("no.such.module:shout", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_target_that_cannot_be_served_is_an_error_that_says_why(name, why):
    with pytest.raises(SettingError, match=why):
        find(name)


INT, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    "taken, item",
    [
        (list[int] | None, INT),
        (Optional[list[int]], INT),  # noqa: UP045
        (Annotated[list[int], "of numbers"] | None, INT),
        (list[int] | Sequence[str], {"anyOf": [INT, TEXT]}),
        (str | list[str], TEXT),
        (list[int | None], {"anyOf": [INT, {"type": "null"}]}),
    ],
)
def test_an_items_type_is_that_of_the_lists_in_a_union(taken, item):
    def function(items):
        return items

    function.__annotations__ = {"items": taken}
    assert made_target("function", function, {}).schemas[0] == item


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date | None = None
    kinds: tuple[int, ...] = ()
    raw: bytes | None = None


def test_a_strict_item_is_what_strict_json_allows():
    def read(body, kind=JSON_KIND):
        return checked(decode(body, kind), target.item, target.arrays)

    def same(items: list[Strict]):
        return items

    target = made_target("same", same, {})
    item = Strict(day=date(2026, 1, 31), kinds=(1, 2))
    assert read(encode(item, JSON_KIND)) == read(encode(item, MSGPACK), MSGPACK) == item
    assert read(msgpack.packb({"raw": b"\xff"}), MSGPACK) == Strict(raw=b"\xff")
    for body, kind, param in (
        (b'{"kinds": ["1"]}', JSON_KIND, "kinds.0"),
        (b'{"day": 20}', JSON_KIND, "day"),
        (msgpack.packb({"raw": b"\xff", "day": 20}), MSGPACK, "day"),
    ):
        with pytest.raises(Problem) as refused:
            read(body, kind)
        assert (refused.value.param, refused.value.code) == (param, "invalid_item")


def test_an_exception_in_a_results_hint_is_no_part_of_its_schema():
    def function(items) -> list[int | str | ValueError]:
        return [ValueError("none") for _ in items]

    assert made_target("function", function, {}).schemas[1] == {"anyOf": [INT, TEXT]}

    def failing(items) -> list[ValueError | OSError]:
        return [ValueError("none") for _ in items]

    assert made_target("failing", failing, {}).schemas[1] == {}


def test_only_module_colon_function_names_a_function(tmp_path, monkeypatch):
    assert names_a_function("module:function") and names_a_function("a.b:c")
    for other in ("Qwen/Qwen2.5-0.5B", "folder", "C:\\model", "a:b:c", ":f", "f:"):
        assert not names_a_function(other)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b").mkdir()
    assert not names_a_function("a:b")


COMMAND = ["-m", "headway"]
IMPATIENT = """
from headway.cli import main
from headway.server.functions import run
from headway.server.listening import http_server
run.CLOSING = http_server.CLOSING_TIME = 0.2
main()
"""


def served(*arguments, folder, program=COMMAND):
    return subprocess.Popen(
        [sys.executable, *program, "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
    )


def heard(process, what):
    """The first line of the process's output that holds this."""
    lines = []
    while not any(what in line for line in lines):
        lines.append(process.stdout.readline())
        assert lines[-1], "".join(lines)
    return lines[-1]


def test_the_command_serves_until_a_signal_and_drains(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import time\ndef slow(items):\n    print('called', flush=True)\n    time.sleep(0.5)\n"
        "    return items\n"
    )
    process = served("mine:slow", "--port", "0", folder=tmp_path)
    try:
        url = re.search(r"url=(\S+)", heard(process, "ready"))[1]
        with ThreadPoolExecutor(1) as pool:
            last = pool.submit(post, url, 1)
            while "called" not in process.stdout.readline():
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert last.result(60) == 1
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()


def keys_of(*names):
    keys = [{"name": name, "sha256": digest(name).hex(), "tenant": "acme"} for name in names]
    return json.dumps({"keys": keys})


@pytest.mark.parametrize("watched", [False, True])
def test_a_serving_function_reloads_its_keys(tmp_path, watched):
    (tmp_path / "mine.py").write_text("def same(items):\n    return items\n")
    file = tmp_path / "headway.yaml"
    file.write_text(keys_of("one", "two"))
    arguments = "mine:same", "--port", "0", "--config", "headway.yaml"
    process = served(*arguments, *(["--reload"] if watched else []), folder=tmp_path)

    def changed(text, what):
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").replace(file)
        if not watched:
            process.send_signal(signal.SIGHUP)
        return heard(process, what)

    def statuses():
        headers = [JSON | {"authorization": f"Bearer {name}"} for name in ("one", "two", "three")]
        return [httpx2.post(url, content=b"1", headers=each).status_code for each in headers]

    try:
        url = re.search(r"url=(\S+)", heard(process, "ready"))[1]
        assert statuses() == [200, 200, 401]
        changed(keys_of("one", "three"), "keys reloaded")
        assert statuses() == [200, 401, 200]
        assert "the last key went" in changed(keys_of(), "not reloaded")
        capped = json.loads(keys_of("one"))["keys"][0] | {"caps": {"max_tokens": 5}}
        said = changed(json.dumps({"keys": [capped]}), "not reloaded")
        assert "its keys no caps" in said and statuses() == [200, 401, 200]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_function_without_keys_on_all_addresses_is_warned_of(tmp_path, monkeypatch, form):
    (tmp_path / "mine.py").write_text("def same(items):\n    return items\n")
    monkeypatch.setenv("HEADWAY_LOGS__FORMAT", form)
    process = served("mine:same", "--host", "0.0.0.0", "--port", "0", folder=tmp_path)
    try:
        said = []
        while "ready" not in "".join(said[-1:]):
            said.append(process.stdout.readline())
            assert said[-1], "".join(said)
        assert "NO API KEYS: OPEN TO EVERYBODY who can reach 0.0.0.0" in "".join(said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_once_a_reload_does_no_harm(tmp_path, monkeypatch, abstract):
    (tmp_path / "mine.py").write_text("def same(items):\n    return items\n")
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{path}" if abstract else path)
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{path}" if abstract else path)
        process = served("mine:same", "--port", "0", folder=tmp_path)
        try:
            assert systemd.recv(100) == b"READY=1"
            process.send_signal(signal.SIGHUP)
            heard(process, "keys reloaded")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.stdout.close()


def test_a_reload_that_is_asked_for_while_the_server_starts_waits_until_it_can_be_done(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\n"
        "def same(items):\n    return items\n"
    )
    process = served("mine:same", "--port", "0", folder=tmp_path)
    try:
        heard(process, "keys reloaded")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()


def test_a_function_that_never_returns_does_not_block_the_shutdown(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import threading\ndef stuck(items):\n    print('called', flush=True)\n"
        "    threading.Event().wait()\n"
    )
    arguments = "mine:stuck", "--port", "0", "--drain-timeout", "100ms"
    process = served(*arguments, folder=tmp_path, program=["-c", IMPATIENT])
    try:
        url = re.search(r"url=(\S+)", heard(process, "ready"))[1]
        with ThreadPoolExecutor(1) as pool:
            pool.submit(httpx2.post, url, content=b"1", headers=JSON, timeout=60)
            while "called" not in process.stdout.readline():
                pass
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["mine_of_errors:none"], "mine_of_errors has no 'none'"),
        (["mine_of_errors:f", "--quantize", "int8"], "are for models, not functions"),
        (["mine_of_errors:f", "--config", "lanes.yaml"], "a function has no lanes"),
        (["mine_of_errors:f", "--config", "lane.yaml"], "server.default_lane: a function's"),
        (["mine_of_errors:f", "--config", "jobs.yaml"], "jobs.lane: f has no lane 'search'"),
    ],
)
def test_the_serve_command_exits_with_2_and_says_what_is_wrong(
    tmp_path, monkeypatch, capsys, arguments, said
):
    (tmp_path / "mine_of_errors.py").write_text("def f(items):\n    return items\n")
    (tmp_path / "lanes.yaml").write_text("lanes:\n  a: {ttft: 1s}\n")
    (tmp_path / "lane.yaml").write_text("server: {default_lane: search}\n")
    (tmp_path / "jobs.yaml").write_text("jobs: {store: jobs.db, lane: search}\n")
    for name in [name for name in os.environ if name.startswith("HEADWAY")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["headway", "serve", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2 and said in capsys.readouterr().err


SHA = "0" * 64


@pytest.mark.parametrize(
    "written, said",
    [
        ("jobs: {store: jobs.db, lane: slow}", "own.yaml is sound: function mine_validated:f, 0 k"),
        (f"keys: [{{name: a, sha256: '{SHA}'}}]", "sound: function mine_validated:f, 1 key\n"),
        (f"keys: [{{name: a, sha256: '{SHA}', weight: 2}}]", "a function's keys have no weight"),
        ("lanes: {a: {ttft: 1s}}", "a function has no lanes"),
    ],
)
def test_the_file_of_a_lone_function_is_validated_without_importing_it(
    tmp_path, monkeypatch, capsys, written, said
):
    (tmp_path / "mine_validated.py").write_text("raise AssertionError('imported')\n")
    (tmp_path / "own.yaml").write_text(written)
    for name in [name for name in os.environ if name.startswith("HEADWAY")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["config", "validate", "mine_validated:f", "--config", "own.yaml"]
    monkeypatch.setattr(sys, "argv", ["headway", *command])
    with pytest.raises(SystemExit) as left:
        main()
    out, error = capsys.readouterr()
    assert said in out + error and (left.value.code or 0) == (0 if "sound" in said else 2)


def keyed(name, **limits):
    return {"name": name, "sha256": digest(name).hex(), **limits}


def bearer(name):
    return {"authorization": f"Bearer {name}"}


def test_a_function_requires_its_keys_and_applies_their_rate_limits():
    config = ServerConfig(keys=[keyed("ann"), keyed("bob", requests_per_minute=1)])
    with serving("shout", config) as (url, service):
        assert post(url, {"text": "a"}, 401)["code"] == "invalid_api_key"
        assert post(url, {"text": "a"}, 401, **bearer("eve"))["code"] == "invalid_api_key"
        assert httpx2.get(f"{url.rpartition('/')[0]}").status_code == 401
        assert post(url, {"text": "a"}, **bearer("ann"))["upper"] == "A"
        assert post(f"{url}/batch", [{"text": "a"}], **bearer("ann"))["results"]
        assert post(url, {"text": "a"}, **bearer("bob"))["upper"] == "A"
        assert post(url, {"text": "a"}, 429, **bearer("bob"))["code"] == "rate_limit_exceeded"
        assert service.open == 0


def test_a_functions_call_beyond_its_keys_concurrent_limit_is_refused():
    config = ServerConfig(keys=[keyed("ann", concurrent=1)])
    with serving("held", config) as (url, service), ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, url, 1, **bearer("ann"))
        until(lambda: service.open)
        error = post(url, 2, 429, **bearer("ann"))
        functions_to_serve.HELD.release()
        assert (first.result(), error["code"]) == (1, "concurrency_limit_exceeded")


def test_a_functions_stream_counts_as_concurrent_until_it_ends():
    config = ServerConfig(keys=[keyed("ann", concurrent=1)])
    with serving("pausing", config) as (url, service):
        asked = {"content": b"3", "headers": JSON | bearer("ann")}
        with httpx2.stream("POST", url, **asked) as answer:
            events = answer.iter_lines()
            assert next(events) == "data: 3" and service.open
            assert httpx2.post(url, **asked).status_code == 429
            functions_to_serve.HELD.release(2)
            assert [line for line in events if line] == ["data: [DONE]"]
        until(lambda: service.open == 0)
        assert httpx2.post(url, **asked).status_code == 200


@pytest.mark.parametrize("more", [{"lanes": ["offline"]}, {"tokens_per_minute": 9}, {"weight": 2}])
def test_key_settings_that_do_not_apply_to_functions_are_refused(more):
    keys = ServerConfig(keys=[keyed("ann", **more), keyed("bob")]).keys
    with pytest.raises(SettingError, match="a function's keys have no"):
        FunctionService(find(f"{MODULE}:shout"), keys)
