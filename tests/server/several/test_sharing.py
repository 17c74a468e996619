"""What several models share and what each has alone: two fake engines behind one front."""

import asyncio
import json

import httpx2
import pytest

from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import digest
from headway.server.engine.handle import EngineState
from headway.server.intake.service import Service
from headway.server.intake.tokenizing import AsyncTokenizer
from tests.server.asgi_client import Client, until
from tests.server.running_server import EMBEDDED, Permitted, app_of, tokenizer

ASK = {"prompt": [5, 6], "max_tokens": 300, "ignore_eos": True}
TWO = [{"name": "a"}, {"name": "b", "aliases": ["bee"]}]


def shared(scene, **more):
    """Play a scene with the application, its service, and the executors of a and b, whose steps
    wait for permits. Afterwards nothing is open."""

    async def play():
        config = ServerConfig(models=TWO, **more)
        executors = [Permitted(), Permitted()]
        engines = [each.engine(config) for each in executors]
        service = Service(config, *engines)
        for model in service.models:
            model.ready(AsyncTokenizer(tokenizer(), EMBEDDED), model.engine.eos)
        app = app_of(service)
        try:
            async with asyncio.timeout(60):
                await scene(app, service, *executors)
                for each in executors:
                    each.permits.release(10_000)
                await until(lambda: not service.open)
        finally:
            for each, engine in zip(executors, engines, strict=True):
                each.permits.release(10_000)
                await asyncio.to_thread(engine.live.close)
            service.close()

    asyncio.run(play())


def ask(app, model, **headers):
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Client(app, {**ASK, "model": model}, pairs)


async def answered(client):
    await client.task
    return client.status, json.loads(client.said).get("error", {}).get("code")


def test_a_full_lane_of_one_model_refuses_no_request_of_another():
    async def scene(app, service, a, b):
        engine = service.model.engine
        first = [ask(app, "a")]
        await until(lambda: a.asked == 1)
        first.append(ask(app, "a"))
        await until(lambda: service.open == 2)
        while not engine.load.lanes["chat"].waiting:  # one runs, a step for each permit
            a.permits.release()
            await asyncio.sleep(0)
        assert await answered(ask(app, "a")) == (429, "lane_full")
        b.permits.release(10_000)
        assert await answered(ask(app, "bee")) == (200, None)
        a.permits.release(10_000)
        assert [await answered(each) for each in first] == [(200, None)] * 2

    shared(scene, lanes={"chat": {"max_waiting": 1}}, engine={"slots": 1})


def test_a_request_supersedes_one_of_another_model():
    async def scene(app, service, a, b):
        first = ask(app, "a", x_headway_supersede="box")
        await until(lambda: service.model.admission.open)
        b.permits.release(10_000)
        later = ask(app, "b", x_headway_supersede="box")
        assert await answered(first) == (409, "superseded")
        assert await answered(later) == (200, None)

    shared(scene)


def test_a_request_is_cancelled_whichever_model_answers_it():
    async def scene(app, service, a, b):
        client = ask(app, "b", x_request_id="mine")
        await until(lambda: service.open)
        assert service.cancel("", "mine") == 1
        assert await answered(client) == (409, "cancelled")
        assert service.cancel("", "mine") == 0

    shared(scene)


def test_the_limits_of_a_key_count_over_all_models():
    keys = [{"name": "k", "sha256": digest("k").hex(), "concurrent": 1}]

    async def scene(app, service, a, b):
        first = ask(app, "a", authorization="Bearer k")
        await until(lambda: service.open)
        limited = 429, "concurrency_limit_exceeded"
        assert await answered(ask(app, "b", authorization="Bearer k")) == limited
        a.permits.release(10_000)
        assert await answered(first) == (200, None)

    shared(scene, keys=keys)


@pytest.mark.parametrize("fault", [EngineState.DOWN, EngineState.LOADING])
def test_a_server_stays_ready_while_one_of_its_models_is_down_or_loading(fault):
    async def scene(app, service, a, b):
        engine = service.model.engine
        b.permits.release(10_000)
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            engine.state, engine.down = fault, "it has died"
            health = await http.get("/health")
            status = "degraded" if fault is EngineState.DOWN else "ok"
            told = {"status": status, "models": {"a": fault.value, "b": "ready"}}
            assert (health.status_code, health.json()) == (200, told)
            assert (await http.get("/ready")).status_code == 200
            assert (await answered(ask(app, "a")))[0] == 503
            assert (await answered(ask(app, "")))[0] == 503, "the first one is meant"
            assert await answered(ask(app, "b")) == (200, None)
            text = (await http.get("/metrics")).text
            refused = 'headway_refusals_total{engine="0",lane="",model_name="a",reason="'
            assert refused in text
            other = service.models.find("b", service.lanes, service.authenticate({})).model
            other.engine.state, other.engine.down = fault, "it has died, too"
            assert (await http.get("/ready")).status_code == 503
            health = await http.get("/health")
            assert health.status_code == (503 if fault is EngineState.DOWN else 200)
            assert (await answered(ask(app, "b")))[0] == 503
            engine.state = other.engine.state = EngineState.READY

    shared(scene)
