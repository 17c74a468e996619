"""Which items pause after one was refused for now: those of its key, of its job, or all."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from headway.server import clock
from headway.server.intake.access_record import access_record
from headway.server.jobs.in_process import DAY, Answer
from headway.server.jobs.metrics import JobMetrics
from headway.server.jobs.runner import Runner, RunnerSettings, result_of
from headway.store.items.items import Item

ITEM = Item("job_1", 0, "", "t", "k", "/v1/x", False, 0, 0, b"{}", "application/json", "*/*")


class Store:
    """Records what the runner asks for, and has no items."""

    items = SimpleNamespace(exchange="exchange")

    def __init__(self, is_alone=True):
        self.asked, self.is_alone = [], is_alone

    def unix(self):
        return clock.unix()

    async def ask(self, what, results, back, room, rooms, jobs):
        self.asked.append((room, rooms, set(jobs), [each.item for each in back]))
        return []


@pytest.mark.parametrize(
    "model, code, wanted",
    [
        ("small", "loading", (4, {}, {"job_1"}, [ITEM])),
        ("", "loading", (0, {}, set(), [ITEM])),
        ("small", "rate_limit_exceeded", (4, {("t", "k"): 0}, set(), [ITEM])),
        ("small", "spend_limit_reached", (4, {("t", "k"): 0}, set(), [ITEM])),
    ],
)
def test_a_refusal_pauses_its_key_its_job_or_all_items(model, code, wanted):
    async def refusing(scope, receive, send):
        access_record().model, access_record().code = model, code
        headers = [(b"retry-after-ms", b"60000")]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def main():
        store, tenant = Store(), SimpleNamespace(name="t")
        settings = RunnerSettings("offline", 4, lambda key, name: tenant)
        runner = Runner(refusing, store, settings, JobMetrics(), None)
        await runner._answer(ITEM)
        await runner._exchange()
        return store.asked

    assert asyncio.run(main()) == [wanted]


@pytest.mark.parametrize(
    "is_alone, rooms, statuses", [(True, {}, [401]), (False, {("t", "k"): 0}, [])]
)
def test_an_item_of_an_unknown_key_fails_only_on_a_lone_server(is_alone, rooms, statuses):
    """Another server that shares the store may have the key."""

    async def main():
        store = Store(is_alone)
        settings = RunnerSettings("offline", 4, lambda key, name: None)
        runner = Runner(None, store, settings, JobMetrics(), None)
        await runner._answer(ITEM)
        found = [each.status_code for each in runner._results]
        await runner._exchange()
        return store.asked, found

    asked, found = asyncio.run(main())
    assert asked == [(4, rooms, set(), [] if is_alone else [ITEM])] and found == statuses


@pytest.mark.parametrize("now, pause", [(20 * DAY, 300), (20 * DAY - 300, 300), (20 * DAY - 7, 7)])
def test_a_spent_cap_is_retried_after_five_minutes_or_when_the_day_ends(monkeypatch, now, pause):
    monkeypatch.setattr("headway.server.clock.unix", lambda: now)
    final = {"x-should-retry": "false"}
    assert Answer(429, final, code="spend_limit_reached").retry_after == pause
    assert Answer(429, final, code="another").retry_after == 0


def test_a_batch_item_that_is_answered_with_a_stream_fails():
    """The batch was accepted before the function was loaded, when nobody knew that it streams."""
    stream = Answer(200, {"content-type": "text/event-stream; charset=utf-8"}, b"data: 1\n\n")
    result = result_of(replace(ITEM, is_batch=True), stream)
    said = json.loads(result.output)
    assert (result.status_code, said["response"]) == (400, None)
    assert said["error"] == {"code": "not_supported", "message": "a batch has no streams"}
    assert result_of(ITEM, stream).output == b"data: 1\n\n", "a later call may be a stream"


def test_a_key_at_its_concurrent_limit_resumes_when_one_of_its_items_ends():
    codes = iter(["concurrency_limit_exceeded", ""])

    async def answering(scope, receive, send):
        access_record().code = code = next(codes)
        headers = [(b"retry-after-ms", b"60000")]
        status = 429 if code else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def main():
        store, rooms = Store(), {("t", "k"): 2, ("t", "other"): 1}
        settings = RunnerSettings(
            "offline", 4, lambda *who: SimpleNamespace(name="t"), lambda: rooms
        )
        runner = Runner(answering, store, settings, JobMetrics(), None)
        for _ in range(2):
            await runner._answer(ITEM)
            await runner._exchange()
        return [rooms for _, rooms, _, _ in store.asked]

    full, open_ = {("t", "k"): 0, ("t", "other"): 1}, {("t", "k"): 2, ("t", "other"): 1}
    assert asyncio.run(main()) == [full, open_]


@pytest.mark.parametrize("left, said", [(3_600, "3600000"), (-5, "1"), (30 * 86_400, "1000000000")])
def test_an_item_is_due_when_its_job_expires(monkeypatch, left, said):
    heard = {}

    async def answering(scope, receive, send):
        heard.update(scope["headers"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    monkeypatch.setattr("headway.server.clock.unix", lambda: 1_000_000)
    settings = RunnerSettings("offline", 4, lambda key, name: SimpleNamespace(name="t"))
    runner = Runner(answering, Store(), settings, JobMetrics(), None)
    asyncio.run(runner._answer(replace(ITEM, expires_at=1_000_000 + left)))
    assert heard[b"x-headway-due-ms"].decode() == said
