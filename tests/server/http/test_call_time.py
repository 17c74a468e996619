"""Calls outside lanes time out, end when their client leaves, and hold nothing afterwards."""

import asyncio
import json

import httpx2
import pytest

from headway.server.config.config import ServerConfig
from headway.server.config.durations import SECOND
from headway.server.http.call_time import CallTimer
from headway.server.http.interruptible import Interruptible
from headway.server.observe.metrics.metrics import Metrics
from tests.server.asgi_client import Client, inside, until
from tests.server.running_server import fake, serving

TEXT = [("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [5]})]
SOON = ServerConfig(server={"limits": {"call_time": "50ms"}})


async def never(*given, **more):
    await asyncio.Event().wait()


def test_the_loop_holds_no_timer_for_calls_that_have_ended():
    async def scene():
        timer, calls = CallTimer(600 * SECOND), [Interruptible(), Interruptible()]
        for call in calls:
            timer.add(call)
        handle = timer._timer
        timer.remove(calls[0])
        assert handle and not handle.cancelled(), "the other one is watched"
        timer.remove(calls[1])
        assert handle.cancelled()
        timer.add(calls[0])
        assert timer._timer is not handle

    asyncio.run(scene())


@pytest.mark.parametrize(("path", "asked"), TEXT)
@pytest.mark.parametrize("own", [True, False])
def test_tokenizing_beyond_its_deadline_ends_with_408(path, asked, own):
    async def scene(app, service, rows):
        service.model.tokenizer.encode = never
        headers = [(b"x-headway-timeout-ms", b"50")] if own else []
        client = Client(app, asked, headers, path=path)
        await client.task
        assert client.status == 408
        assert json.loads(client.said)["error"]["code"] == "deadline_exceeded"
        assert client.headers["x-should-retry"] == "false" and client.headers["x-request-id"]
        assert not service.held.size and not service.bodies.held_bytes

    inside(ServerConfig() if own else SOON, fake, scene)


@pytest.mark.parametrize(("path", "asked"), TEXT)
def test_a_client_that_disconnects_frees_what_its_text_held(path, asked):
    async def scene(app, service, rows):
        service.model.tokenizer.encode = never
        client = Client(app, asked, path=path)
        await until(lambda: service.held.size)
        client.left.set()
        await client.task
        assert client.status == 499
        assert not service.held.size and not service.bodies.held_bytes

    inside(ServerConfig(), fake, scene)


def test_metrics_that_are_never_ready_time_out(monkeypatch):
    monkeypatch.setattr(Metrics, "text", never)
    with serving(SOON, fake) as (url, _):
        answer = httpx2.get(f"{url}/metrics", timeout=30)
    assert answer.status_code == 408


def test_a_client_that_leaves_early_ends_its_metrics_call(monkeypatch):
    waits = []

    async def slow(self):
        try:
            waits.append("begun")
            await asyncio.Event().wait()
        finally:
            waits.append("over")

    monkeypatch.setattr(Metrics, "text", slow)

    async def leave(url):
        async with httpx2.AsyncClient(timeout=30) as client:
            asking = asyncio.create_task(client.get(f"{url}/metrics"))
            await until(lambda: waits)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: waits == ["begun", "over"])

    with serving(ServerConfig(), fake) as (url, _):
        asyncio.run(leave(url))


def test_an_invalid_deadline_is_refused():
    with serving(ServerConfig(), fake) as (url, _):
        answer = httpx2.get(f"{url}/v1/models", headers={"X-Headway-Timeout-Ms": "soon"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x-headway-timeout-ms"
