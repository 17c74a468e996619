"""More requests than a lane can take: refusals, their cost, and the time to retry."""

import asyncio
import random
from types import SimpleNamespace

import httpx2
import pytest

from headway.core.lane import Lane
from headway.core.load import LaneLoad, Load
from headway.core.request import NEVER
from headway.server.config.config import ServerConfig
from headway.server.intake.admission import Admission
from headway.server.intake.retry_schedule import RetrySchedule
from headway.server.intake.supersede import Supersession
from headway.server.protocol.problem import Problem
from headway.server.protocol.retry_after import LEAST, MOST
from tests.server.running_server import Permitted, fake, serving, until

SECOND = 10**9
LONGEST = 1_020  # tokens of a prompt; with an answer of 4 this fills the context


@pytest.fixture
def without_jitter(monkeypatch):
    monkeypatch.setattr(random, "uniform", lambda low, high: low)


def test_refused_clients_get_retry_times_one_after_another(without_jitter):
    returns, drained = RetrySchedule(), 10 * SECOND
    assert [returns.next("a", "k", 0, drained, 2 * SECOND) for _ in range(3)] == [10, 12, 14]
    assert returns.next("b", "k", 0, drained, 2 * SECOND) == 10, "each lane has its own sequence"
    assert returns.next("a", "k", 9 * SECOND, drained, 2 * SECOND) == 7, (
        "it is given the place at 16 s"
    )
    assert returns.next("a", "k", 60 * SECOND, 61 * SECOND, SECOND) == LEAST, (
        "all of them have retried"
    )


def test_refusals_of_one_key_do_not_delay_other_keys(without_jitter):
    returns, drained = RetrySchedule(), 2 * SECOND
    flood = [returns.next("a", "flood", 0, drained, SECOND) for _ in range(300)]
    assert flood[:3] == [2, 3, 4] and flood[-1] == MOST
    assert returns.next("a", "other", 0, drained, SECOND) == 2
    assert returns.next("a", "other", 0, drained, SECOND) == 4, "two keys share what drains"
    # All retry times but the last one of the flood have passed.
    assert returns.next("a", "other", 79 * SECOND, 80 * SECOND, SECOND) == LEAST
    assert returns.next("a", "other", 79 * SECOND, 80 * SECOND, SECOND) == 3
    assert returns.next("a", "other", 99 * SECOND, 100 * SECOND, SECOND) == LEAST
    assert returns.next("a", "other", 99 * SECOND, 100 * SECOND, SECOND) == 2, "it is the only key"


def test_no_retry_time_exceeds_the_longest_that_clients_wait(without_jitter):
    returns = RetrySchedule()
    said = [returns.next("a", "k", 0, 70 * SECOND, SECOND) for _ in range(1_000)]
    assert said[:12] == [*range(70, 81), MOST] and set(said[12:]) == {MOST}
    assert returns.next("a", "k", 5 * SECOND, 0, 0) < MOST, "no place beyond that is given away"


def test_jitter_adds_up_to_half_of_the_wait():
    said = [RetrySchedule().next("a", "k", 0, 10 * SECOND, 0) for _ in range(200)]
    assert 10 <= min(said) < 11 and 14 < max(said) <= 15


def admission(waiting, now=SECOND):
    """Admission to a lane with five waiting places. Each waiting request takes half a second."""
    line = LaneLoad(Lane("chat", max_waiting=5), waiting, 10 * waiting, drain=20.0)
    return Admission(
        SimpleNamespace(load=Load(lanes={"chat": line})), None, lambda: now, Supersession()
    )


def test_a_request_for_a_full_lane_is_refused_at_admission(without_jitter):
    admission(waiting=4).check_room("chat", NEVER, 1)
    full = admission(waiting=5)
    for retry in (2.5, 3.0, 4.0):  # the second call has two requests
        with pytest.raises(Problem, match="5 requests wait in 'chat' already") as caught:
            full.check_room("chat", NEVER, 2 if retry == 3.0 else 1)
        assert (caught.value.status, caught.value.retry) == (429, retry)


def test_a_request_that_would_be_late_is_refused_at_once(without_jitter):
    crowded = admission(waiting=4)
    crowded.check_room("chat", 4 * SECOND, 1)
    with pytest.raises(
        Problem, match=r"about 2 s and may be 3 s.* must start within 2 s"
    ) as caught:
        crowded.check_room("chat", 3 * SECOND, 1)
    assert (caught.value.status, caught.value.code, caught.value.retry) == (429, "lane_full", 2)


def test_a_flood_of_one_key_does_not_change_the_retry_time_of_another(without_jitter):
    full = admission(waiting=5)
    for key, count, last in (("flood", 300, MOST), ("other", 1, 2.5)):
        for _ in range(count):
            with pytest.raises(Problem) as caught:
                full.check_room("chat", NEVER, 1, key)
        assert caught.value.retry == last


async def asked(url, bodies):
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
        return await asyncio.gather(*[client.post("/v1/completions", json=b) for b in bodies])


def test_each_prompt_of_a_burst_is_served_whole_or_refused_with_retry_after():
    executor, count, waiting, slots = Permitted(), 16, 3, 2
    config = ServerConfig(
        lanes={"standard": {"max_waiting_tokens": waiting * LONGEST}}, engine={"slots": slots}
    )
    bodies = [
        {"prompt": [5 + i] * LONGEST, "max_tokens": 4, "ignore_eos": True} for i in range(count)
    ]
    with serving(config, executor.engine) as (url, service):

        def let_go():
            until(
                lambda: service.model.admission.open == count
            )  # the load snapshot still shows an empty lane
            executor.permits.release(10_000)

        async def burst():
            answers, _ = await asyncio.gather(asked(url, bodies), asyncio.to_thread(let_go))
            return answers

        answers = asyncio.run(burst())
        until(lambda: not service.model.engine.load.running)
        assert service.model.engine.load.free_blocks == service.model.engine.load.num_blocks
    refused = [each for each in answers if each.status_code == 429]
    served = [each for each in answers if each.status_code == 200]
    assert len(served) + len(refused) == count
    assert waiting <= len(served) <= waiting + slots
    assert all(1 <= int(each.headers["retry-after"]) <= 120 for each in refused)
    assert all(each.json()["usage"]["completion_tokens"] == 4 for each in served)


def test_a_prompt_longer_than_may_ever_wait_gets_400_without_retry_after():
    lanes = {"standard": {"max_waiting_tokens": 30}}
    with serving(ServerConfig(lanes=lanes), fake) as (url, _):
        answer = httpx2.post(f"{url}/v1/completions", json={"prompt": [5] * 31})
    said = answer.json()["error"]["message"]
    assert said == "31 prompt tokens are more than may ever wait in 'standard': 30"
    assert answer.status_code == 400 and "retry-after" not in answer.headers


def test_a_refused_request_is_not_tokenized(monkeypatch):
    executor = Permitted()
    config = ServerConfig(lanes={"standard": {"max_waiting": 1}}, engine={"slots": 1})
    with serving(config, executor.engine) as (url, service):
        body = {"prompt": "x", "max_tokens": 5, "ignore_eos": True}

        async def crowd():
            first = asyncio.create_task(asked(url, [body]))
            executor.permits.release()
            while not service.model.engine.load.running:
                await asyncio.sleep(0)
            second = asyncio.create_task(asked(url, [body]))
            while service.model.admission.open < 2:
                await asyncio.sleep(0)
            executor.permits.release(2)  # the second request is in the lane after two steps
            while not service.model.engine.load.lanes["standard"].waiting:
                await asyncio.sleep(0)
            monkeypatch.setattr(service.model.tokenizer, "encode", None)
            refused = await asked(url, [body])
            executor.permits.release(10)
            return refused + await first + await second

        refused, *served = asyncio.run(crowd())
    assert refused.status_code == 429
    assert [each.status_code for each in served] == [200, 200]
