"""The live page of a running server: what it counts, who sees what, signing in and out."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2
import pytest

from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import digest
from headway.server.dashboard import board
from headway.server.dashboard.sessions import LASTS, MOST, MOST_OF_KEY, Sessions
from tests.server.running_server import Permitted, fake, serving, until

PATH = "/v1/completions"
FORM = {"content-type": "application/x-www-form-urlencoded"}
LANES = {"voice": {"ttft": "1h"}, "chat": {"ttft": "1ns", "max_waiting": 1}, "bulk": {}}


def config_of(**keys):
    """keys: the lanes of each key. A key's own text is its name."""
    made = [
        {"name": name, "sha256": digest(name).hex(), "lanes": may} for name, may in keys.items()
    ]
    return ServerConfig(lanes=LANES, keys=made)


def ask(client, lane="voice", key="", id="", **body):
    headers = {"x-headway-lane": lane} | ({"x-request-id": id} if id else {})
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    body = {"prompt": [5, 6, 7], "max_tokens": 3, **body}
    return client.post(PATH, json=body, headers=headers)


@contextmanager
def signed_in(url, key):
    with httpx2.Client(base_url=url, timeout=30) as client:
        sign_in(client, key)
        yield client


def sign_in(client, key):
    answer = client.post("/dashboard/sign-in", data={"key": key})
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard")


def cells(page, lane):
    """The table's row of a lane, as text."""
    (row,) = re.findall(
        rf'<tr id="lanes-0-\d+"><th scope="row" class="words">{lane}</th>.*?</tr>', page
    )
    return [re.sub("<[^>]*>", "", each) for each in re.findall(r"<td[^>]*>(.*?)</td>", row)]


@pytest.fixture(autouse=True)
def no_view_is_shown_twice(monkeypatch):
    monkeypatch.setattr(board, "FRESH", 0)


@pytest.fixture(scope="module")
def running():
    config = config_of(ann=["voice", "chat"], bob=["chat", "bulk"])
    with serving(config, fake) as (url, service):
        with httpx2.Client(base_url=url, timeout=30) as client:
            for k in range(3):
                assert ask(client, "voice", "ann", f"anns-{k}").status_code == 200
            assert ask(client, "chat", "bob", "bobs").status_code == 200
        yield url, service


def test_simultaneous_visits_with_one_key_draw_the_page_once(running, monkeypatch):
    monkeypatch.setattr(board, "FRESH", 3_600 * 10**9)
    drawn, draw, ready = [], board.fragment, threading.Event()

    def slowly(view):
        drawn.append(view.key)
        assert ready.wait(30)
        return draw(view)

    monkeypatch.setattr(board, "fragment", slowly)
    header = {"authorization": "Bearer ann"}
    with ThreadPoolExecutor(8) as pool:
        paths = ["/dashboard", "/dashboard/live"] * 4
        looks = [pool.submit(httpx2.get, f"{running[0]}{p}", headers=header) for p in paths]
        until(lambda: drawn)
        ready.set()
        pages = [each.result().text for each in looks]
    assert drawn == ["ann"] and all(pages[1] in page for page in pages)


def test_without_keys_the_page_is_open_and_counts_what_was_asked():
    with serving(ServerConfig(lanes=LANES), fake) as (url, _):
        with httpx2.Client(base_url=url, timeout=30) as client:
            for _ in range(3):
                ask(client, "voice")
            assert [ask(client, "chat").status_code for _ in range(2)] == [200, 200]
            page = client.get("/dashboard").text
        assert cells(page, "voice")[:2] == ["100 %", "3"]
        assert cells(page, "chat")[:2] == ["0 %", "2"]  # nothing comes within a nanosecond
        assert "Sign out" not in page and page.count('<details id="slow-') == 2


def test_refusals_and_cancels_are_counted_as_in_the_metrics():
    """One request runs, one waits and is cancelled, and the next ones find the lane full."""
    config, made = ServerConfig(lanes=LANES, engine={"slots": 1}), []

    def engine(config):
        made.append(Permitted())
        return made[0].engine(config)

    with serving(config, engine) as (url, service), ThreadPoolExecutor(2) as pool:  # noqa: SIM117
        with httpx2.Client(base_url=url, timeout=30) as client:
            first = pool.submit(ask, client, "chat", max_tokens=9)
            until(lambda: made[0].asked == 1)
            leaves = pool.submit(ask, client, "chat", id="leaves")
            until(lambda: service.open == 2)
            made[0].permits.release(2)  # after the second step the load shows it waiting
            until(lambda: service.model.engine.load.lanes["chat"].waiting == 1)
            assert [ask(client, "chat").status_code for _ in range(3)] == [429] * 3
            assert client.get("/dashboard").text.count("no token yet") == 1
            assert client.post("/v1/requests/leaves/cancel").status_code == 200
            made[0].permits.release(99)
            assert (first.result().status_code, leaves.result().status_code) == (200, 409)
            until(lambda: client.get("/v1/lanes").json()["running"] == 0)
            told, scraped = (
                cells(client.get("/dashboard").text, "chat"),
                client.get("/metrics").text,
            )
    assert told[1] == "5" and told[7:9] == ["3", "1"]
    outcomes = re.findall(r'headway_requests_total{.*lane="chat".*} ([0-9.]+)', scraped)
    assert sum(map(float, outcomes)) == 5


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ({"tokens_per_minute": 100}, "rate_limit_exceeded"),
        ({"caps": {"money_per_day": 0.05}}, "spend_limit_reached"),
    ],
)
def test_a_refusal_at_a_keys_own_limit_does_not_count_against_the_lane(tmp_path, limit, code):
    """Each request may use 93 tokens, which cost nearly 0.05, so each key is allowed one."""
    told = [{"name": name, "sha256": digest(name).hex(), **limit} for name in ("ann", "bob")]
    prices = {"per_million_prompt": 500, "per_million_answer": 500}
    ledger = {"url": str(tmp_path / "ledger.db")}
    config = ServerConfig(lanes=LANES, keys=told, prices=prices, ledger=ledger)
    with (
        serving(config, fake) as (url, _),
        httpx2.Client(base_url=url, timeout=30) as client,
    ):
        for key in ("ann", "bob"):
            assert ask(client, "voice", key, max_tokens=90).status_code == 200
        until(lambda: client.get("/metrics").text.count('outcome="good"} 2'))
        refused = [ask(client, "voice", "ann", max_tokens=90) for _ in range(3)]
        page = client.get("/dashboard", headers={"authorization": "Bearer ann"}).text
    assert [each.json()["error"]["code"] for each in refused] == [code] * 3
    row = cells(page, "voice")
    assert row[:2] == ["100 %", "2"] and row[7] == "3"


def test_a_cancelled_answer_that_was_in_time_is_not_listed_as_late():
    """`chat` had missed its budget of a nanosecond before the cancel, and `voice` had not."""
    made = Permitted()
    with (
        serving(ServerConfig(lanes=LANES), made.engine) as (url, _),
        httpx2.Client(base_url=url, timeout=30) as client,
        ThreadPoolExecutor(2) as pool,
    ):

        def status(id):
            return client.get(f"/v1/requests/{id}").json().get("status")

        both = "voice", "chat"
        asked = [pool.submit(ask, client, each, id=each, max_tokens=900) for each in both]
        until(lambda: made.permits.release() or [status(id) for id in both] == ["running"] * 2)
        left = [client.post(f"/v1/requests/{id}/cancel").status_code for id in both]
        made.permits.release(99)
        assert [each.result().status_code for each in asked] == [409, 409] and left == [200, 200]
        until(lambda: [status(id) for id in both] == ["ended"] * 2)
        page = client.get("/dashboard").text
    assert "The latest outside their budget, of 2" in page
    (slow,) = re.findall(r"<summary>.*?<b>(.*?)</b>", page)
    assert slow == "chat"


def test_a_browser_without_a_key_is_sent_to_the_form(running):
    url, _ = running
    answer = httpx2.get(f"{url}/dashboard")
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/sign-in")
    form = httpx2.get(f"{url}/dashboard/sign-in")
    assert form.status_code == 200 and 'type="password"' in form.text
    assert "voice" not in form.text
    live = httpx2.get(f"{url}/dashboard/live")
    assert live.status_code == 401 and live.json()["error"]["code"] == "invalid_api_key"


def test_a_key_in_the_header_needs_no_session(running):
    url, _ = running
    page = httpx2.get(f"{url}/dashboard", headers={"authorization": "Bearer ann"})
    assert page.status_code == 200 and "Sign out" not in page.text
    assert "set-cookie" not in page.headers
    assert (
        httpx2.get(f"{url}/dashboard", headers={"authorization": "Bearer eve"}).status_code == 401
    )


def test_a_key_sees_its_lanes_and_its_tenants_requests(running):
    url, _ = running
    pages = {}
    for key in ("ann", "bob"):
        with signed_in(url, key) as client:
            pages[key] = client.get("/dashboard").text
    assert "anns-0" in pages["ann"] and "bobs" not in pages["ann"]
    assert "bobs" in pages["bob"] and "anns-" not in pages["bob"]
    for name, lanes in (("ann", {"voice", "chat"}), ("bob", {"chat", "bulk"})):
        shown = set(re.findall(r'scope="row" class="words">(\w+)</th>', pages[name])) & set(LANES)
        assert shown == lanes and (set(LANES) - lanes).pop() not in pages[name]
    # A lane's figures count all of its requests, as those of /v1/lanes do.
    assert cells(pages["ann"], "chat")[1] == "1"


def test_the_cookie_is_for_the_page_alone_and_holds_no_key(running):
    url, _ = running
    answer = httpx2.post(f"{url}/dashboard/sign-in", data={"key": "ann"})
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/dashboard", "Max-Age=43200"} <= set(
        cookie.split("; ")
    )
    assert "ann" not in cookie and digest("ann").hex() not in cookie and "Secure" not in cookie
    token = cookie.partition(";")[0]
    assert httpx2.get(f"{url}/v1/models", headers={"cookie": token}).status_code == 401
    proxied = {"x-forwarded-proto": "https"}
    answer = httpx2.post(f"{url}/dashboard/sign-in", data={"key": "ann"}, headers=proxied)
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("key", ["", "evelyn", digest("ann").hex(), "a" * 3_000])
def test_a_wrong_key_signs_nobody_in(running, key):
    url, _ = running
    answer = httpx2.post(f"{url}/dashboard/sign-in", data={"key": key})
    assert answer.status_code == 401 and "not a key" in answer.text
    assert "set-cookie" not in answer.headers and (not key or key not in answer.text)


def test_sign_in_refuses_long_forms_other_types_and_many_fields(running):
    url, _ = running
    long = httpx2.post(f"{url}/dashboard/sign-in", data={"key": "a" * 5_000})
    assert long.status_code == 413
    typed = httpx2.post(f"{url}/dashboard/sign-in", json={"key": "ann"})
    assert typed.status_code == 415
    many = httpx2.post(f"{url}/dashboard/sign-in", content="&".join(["a=1"] * 99), headers=FORM)
    assert many.status_code == 400


@pytest.mark.parametrize("path", ["sign-in", "sign-out"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_forms_of_foreign_pages_are_refused(running, path, headers):
    url, _ = running
    with signed_in(url, "ann") as client:
        answer = client.post(f"/dashboard/{path}", data={"key": "bob"}, headers=headers)
        assert answer.status_code == 403 and "set-cookie" not in answer.headers
        assert client.get("/dashboard").status_code == 200


def test_a_form_of_the_page_itself_is_accepted(running):
    url, _ = running
    own = {"origin": url, "sec-fetch-site": "same-origin"}
    answer = httpx2.post(f"{url}/dashboard/sign-in", data={"key": "ann"}, headers=own)
    assert answer.status_code == 303


def test_signing_out_ends_the_session_on_the_server_too(running):
    url, _ = running
    with signed_in(url, "ann") as client:
        token = client.cookies["headway_session"]
        assert client.post("/dashboard/sign-out").status_code == 303
        assert "headway_session" not in client.cookies
    again = httpx2.get(f"{url}/dashboard", headers={"cookie": f"headway_session={token}"})
    assert again.status_code == 303


def test_a_session_ends_with_its_key(running):
    url, service = running
    with signed_in(url, "bob") as client:
        known, service.keys._known = service.keys._known, service.keys._known[:1]
        try:
            assert client.get("/dashboard").status_code == 303
        finally:
            service.keys._known = known
        assert client.get("/dashboard").status_code == 200


def test_pages_forbid_caching_framing_and_foreign_content(running):
    url, _ = running
    for path in ("/dashboard", "/dashboard/live", "/dashboard/sign-in"):
        with httpx2.Client(base_url=url, timeout=30) as client:
            if path != "/dashboard/sign-in":
                sign_in(client, "ann")
            answer = client.get(path)
        headers = answer.headers
        assert answer.status_code == 200 and headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["content-type"] == "text/html; charset=utf-8"


def test_sessions_expire_and_are_bounded():
    now = [0]
    sessions = Sessions(lambda: now[0])
    first = sessions.open(b"a")
    other = sessions.open(b"b")
    for _ in range(MOST_OF_KEY):
        latest = sessions.open(b"a")
    assert sessions.key_of(first) == b"" and sessions.key_of(latest) == b"a"
    assert sessions.key_of(other) == b"b" and len(sessions) == MOST_OF_KEY + 1
    now[0] = LASTS
    assert sessions.key_of(other) == b""
    sessions.open(b"c")
    assert len(sessions) == 1
    for k in range(2 * MOST):
        sessions.open(str(k).encode())
    assert len(sessions) == MOST
    assert sessions.key_of("") == sessions.key_of("\udc80") == b""
