"""Keys: who is admitted, to which lanes, and how much per minute."""

import hmac
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from hashlib import sha256

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headway.core.request import NEVER
from headway.errors import RefusedError, SettingError
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import KeySettings, new_key
from headway.server.config.tenant import Tenant
from headway.server.intake import keys as module
from headway.server.intake.keys import Denied, KeyRing
from headway.server.intake.limits.concurrency import Permit
from headway.server.intake.limits.rate_limits import MINUTE, Bucket, RateLimit
from tests.server.running_server import Permitted, fake, hopeless, serving, until

S = 1_000_000_000


def entry(key, **more):
    return {"name": key, "sha256": sha256(key.encode()).hexdigest(), **more}


def ring(*keys):
    config = ServerConfig(keys=keys)
    return KeyRing(config.keys, config.lanes, config.default_lane)


ALL = frozenset({"interactive", "standard", "offline"})


def test_a_key_gives_access_to_its_lanes():
    made = ring(
        entry("one"),
        entry("two", tenant="shop", lanes=["offline", "interactive"]),
        entry("three", tenant="shop", default_lane="interactive"),
    )
    assert not made.is_open
    assert made.authenticate("Bearer one") == Tenant("one", "one", ALL, "standard", "one")
    two = made.authenticate("bearer   two ")
    assert (two.name, two.key, two.salt) == ("shop", "two", "shop")
    assert (two.lanes, two.default_lane) == ({"offline", "interactive"}, "offline")
    three = made.authenticate("Bearer three")
    assert (three.default_lane, three.salt) == ("interactive", two.salt)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic one", "one"])
def test_a_request_without_a_key_is_told_how_to_send_one(header):
    denied = ring(entry("one")).authenticate(header)
    assert isinstance(denied, Denied) and "Authorization: Bearer" in denied.reason


@pytest.mark.parametrize("header", ["Bearer on", "Bearer ones", "Bearer One", "Bearer \udcff"])
def test_a_wrong_key_is_denied_without_being_repeated(header):
    denied = ring(entry("one")).authenticate(header)
    assert denied == Denied("the API key is not one of this server's")


def test_every_key_is_compared_whichever_matches(monkeypatch):
    made, compared = ring(entry("one"), entry("two"), entry("three")), []

    def compare(a, b):
        compared.append(a)
        return hmac.compare_digest(a, b)

    monkeypatch.setattr(module, "compare_digest", compare)
    for key in ("one", "two", "three", "none"):
        compared.clear()
        made.authenticate(f"Bearer {key}")
        assert len(compared) == 3


def test_without_keys_everybody_is_the_same_tenant():
    made = ring()
    assert made.is_open
    anybody = made.authenticate("")
    assert anybody == made.authenticate("Bearer EMPTY") == Tenant("", "", ALL, "standard", "")
    assert made.take(anybody, 10**9, 0) == made.ask(anybody, 0) == 0
    assert made.begin(anybody)
    made.end(anybody)
    made.give_back(anybody, 10, 0)


@pytest.mark.parametrize(
    "keys, message",
    [
        ([{"name": "a", "sha256": "hw-secret"}], "64 hexadecimal digits"),
        ([{"name": "a", "sha256": 12345678}], "64 hexadecimal digits"),
        ([{"name": "hw secret", **entry("a")} | {"name": "secret key"}], "should match pattern"),
        (["hw-secret"], "should be a mapping"),
        ([entry("a"), entry("a")], "two have the same name"),
        ([entry("a"), {**entry("a"), "name": "b"}], "two have the same sha256"),
        ([entry("a", lanes=["offline"], default_lane="standard")], "is not one of its lanes"),
        ([entry("a", requests_per_minute=-1)], "greater than or equal to 0"),
    ],
)
def test_an_invalid_entry_is_refused_without_repeating_its_secret(keys, message):
    with pytest.raises(SettingError) as caught:
        ServerConfig.load(None, {"keys": keys})
    assert message in str(caught.value) and "secret" not in str(caught.value)


def test_a_new_key_matches_the_entry_printed_with_it():
    said = new_key("ci").split()
    key = next(word for word in said if word.startswith("hw-"))
    digest = next(word.strip('"') for word in said if len(word) == 66)
    made = ring({"name": "ci", "sha256": digest})
    assert made.authenticate(f"Bearer {key}").key == "ci"
    assert key not in new_key("ci")
    with pytest.raises(SettingError, match="cannot name a key"):
        new_key("a b")


def test_the_repr_of_a_key_does_not_show_its_hash():
    assert "sha256" not in repr(KeySettings(**entry("one")))


def test_each_key_has_its_own_limits():
    made = ring(
        entry("one", requests_per_minute=2), entry("two", tokens_per_minute=60), entry("three")
    )
    one, two, three = (made.authenticate(f"Bearer {key}") for key in ("one", "two", "three"))
    assert [made.ask(one, 0) for _ in range(3)] == [0, 0, 30 * S]
    assert made.take(one, 10**6, 0) == 0
    assert [made.take(two, 40, 0) for _ in range(2)] == [0, 20 * S]
    made.give_back(two, 30, 0)
    assert made.take(two, 40, 0) == 0
    assert [made.take(three, 10**6, 0) for _ in range(9)] == [0] * 9
    assert [made.ask(three, 0) for _ in range(9)] == [0] * 9


def test_a_key_is_limited_in_concurrent_requests():
    made = ring(entry("one", concurrent=2), entry("two"))
    assert made.rooms() == {("one", "one"): 2}
    one, two = (made.authenticate(f"Bearer {key}") for key in ("one", "two"))
    assert [made.begin(one) for _ in range(3)] == [True, True, False]
    assert all(made.begin(two) for _ in range(9))
    permit = Permit(made, one)
    permit.release()
    permit.release()
    assert [made.begin(one) for _ in range(2)] == [True, False], "it has ended once"


def test_the_request_limit_is_checked_before_the_token_limit():
    limit = RateLimit(requests=1, tokens=100)
    assert limit.ask(0) == 0
    assert limit.take(101, 0) == NEVER, "no waiting makes a minute's worth larger"
    assert limit.take(100, 0) == 0
    assert limit.take(50, 0) == MINUTE // 2
    assert limit.ask(0) == limit.ask(0) == MINUTE, "it waits for a request, not for tokens"
    assert limit.ask(MINUTE) == 0


def test_a_key_that_owes_tokens_is_refused_before_its_request_is_read():
    limit = RateLimit(requests=5, tokens=60)
    limit.give_back(-89, 0)
    assert [limit.ask(0) for _ in range(9)] == [30 * S] * 9
    assert [limit.ask(30 * S) for _ in range(6)] == [0] * 5 + [12 * S], "the refusal took none"


def test_tokens_used_beyond_the_charge_are_owed():
    limit = RateLimit(requests=0, tokens=60)
    assert limit.a_minute == 60 and limit.take(60, 0) == 0
    limit.give_back(-30, 0)
    assert limit.take(1, 0) == 31 * S
    assert RateLimit(requests=5, tokens=0).a_minute == NEVER


def test_the_wait_for_a_bucket_is_exact():
    bucket = Bucket(7)
    bucket.take(7, 0)
    wait = bucket.wait(1, 0)
    assert wait == -(-MINUTE // 7)
    assert bucket.wait(1, wait - 1) == 1 and bucket.wait(1, wait) == 0


def test_a_bucket_is_never_overfilled_and_ignores_time_running_backwards():
    bucket = Bucket(10)
    bucket.take(4, S)
    bucket.give_back(9, S)
    assert bucket.wait(10, S) == 0
    bucket.take(10, S)
    assert bucket.wait(10, 0) == MINUTE


def test_a_changed_limit_keeps_the_share_that_was_left_or_owed():
    limit = RateLimit(requests=4, tokens=100)
    assert [limit.ask(0) for _ in range(3)] == [0] * 3 and limit.take(100, 0) == 0
    limit = RateLimit(requests=8, tokens=100, concurrent=1).after(limit)
    assert limit.take(1, 0) == MINUTE // 100, "no token has come back"
    limit = RateLimit(requests=8, tokens=0).after(limit)
    assert [limit.ask(0) for _ in range(3)] == [0, 0, MINUTE // 8], "a quarter was left"
    limit = RateLimit(requests=0, tokens=60).after(limit)
    limit.give_back(-90, 0)
    assert RateLimit(requests=0, tokens=6).after(limit).ask(0) == MINUTE // 2 + MINUTE // 6


def asked(url, lane, **more):
    body = {"prompt": [5] * 50, "max_tokens": 3, "ignore_eos": True} | more
    headers = {"authorization": "Bearer one", "x-headway-lane": lane, "x-request-id": lane}
    return httpx2.post(f"{url}/v1/completions", json=body, headers=headers, timeout=60)


def tokens_counted(url):
    families = text_string_to_metric_families(httpx2.get(f"{url}/metrics").text)
    (found,) = [each for each in families if each.name == "headway_key_tokens"]
    return {each.labels["kind"]: each.value for each in found.samples if each.name[-1] == "l"}


def test_a_refusal_uses_no_tokens_of_its_key():
    """The lane refuses late requests, and every request is late. The key has 60 tokens a minute."""
    lanes = {"chat": {"ttft": "1s", "late": "refuse"}, "bulk": {}}
    keys = [entry("one", tokens_per_minute=60)]
    config = ServerConfig(engine={"slots": 4, "cost": "cost.json"}, lanes=lanes, keys=keys)
    with serving(config, hopeless) as (url, service):
        for more in ({}, {}, {"n": 2}, {"n": 2}, {}):
            assert asked(url, "chat", **more).json()["error"]["code"] == "lane_full"
            until(lambda: not service.model.admission._leaving._calls)
        assert tokens_counted(url) == {"prompt": 0, "answer": 0}
        assert asked(url, "bulk").status_code == 200
        assert tokens_counted(url) == {"prompt": 50, "answer": 3}


def test_a_request_that_the_engine_does_not_take_uses_no_tokens_of_its_key():
    """The engine refuses after the key was charged. The key has 60 tokens a minute."""

    def refuses(*given):
        raise RefusedError("the engine takes nothing", NEVER)

    config = ServerConfig(keys=[entry("one", tokens_per_minute=60)])
    with serving(config, fake) as (url, service):
        engine = service.model.admission.engine
        submit, engine.submit = engine.submit, refuses
        assert [asked(url, "standard").status_code for _ in range(3)] == [400] * 3
        engine.submit = submit
        assert asked(url, "standard").status_code == 200


def test_a_request_of_more_tokens_than_a_minute_has_is_told_how_many_that_are():
    config = ServerConfig(keys=[entry("one", tokens_per_minute=20)])
    with serving(config, fake) as (url, _):
        answer = asked(url, "standard")
    assert answer.status_code == 400
    said = answer.json()["error"]["message"]
    assert said.startswith("this key has 20 tokens a minute, and ") and "max_tokens" in said


def test_a_cancelled_requests_prompt_counts_only_if_it_was_begun():
    """There is one slot: the first request runs, and the second one waits. The key has 120 tokens a
    minute."""
    config = ServerConfig(engine={"slots": 1}, keys=[entry("one", tokens_per_minute=120)])
    executor = Permitted()
    with serving(config, executor.engine) as (url, service), ThreadPoolExecutor() as pool:
        admission = service.model.admission
        first = pool.submit(asked, url, "standard")
        until(lambda: executor.asked == 1)
        second = pool.submit(asked, url, "offline")
        until(lambda: admission.open == 2)
        for lane, each in (("offline", second), ("standard", first)):
            headers = {"authorization": "Bearer one"}
            httpx2.post(f"{url}/v1/requests/{lane}/cancel", headers=headers)
            assert each.result().status_code == 409
        executor.permits.release(100)
        until(lambda: not admission._leaving._calls)
        assert tokens_counted(url) == {"prompt": 50, "answer": 0}
        assert asked(url, "standard").status_code == 200, "70 are left"
        assert asked(url, "standard").json()["error"]["code"] == "rate_limit_exceeded"


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 2 * MINUTE), st.integers(1, 60)), max_size=40),
)
def test_no_time_span_passes_more_than_a_full_bucket_and_its_inflow(rate, asks):
    bucket, now, taken = Bucket(rate), 0, []
    for gap, count in asks:
        now += gap
        if (wait := bucket.wait(count, now)) == 0:
            bucket.take(count, now)
            taken.append((now, count))
        elif wait == NEVER:
            assert count > rate
        else:
            assert bucket.wait(count, now + wait - 1) > 0
            assert bucket.wait(count, now + wait) == 0
            break
    for at, (begin, _) in enumerate(taken):
        for end, _ in taken[at:]:
            inside = sum(count for time, count in taken if begin <= time <= end)
            assert inside <= rate + Fraction(rate * (end - begin), MINUTE)
