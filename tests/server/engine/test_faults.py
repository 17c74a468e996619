"""What clients over HTTP are told when the engine process fails, pauses and dies."""

import asyncio
import os
import re
import signal

import httpx2

from headway.models import EMBEDDED
from headway.server.answering.choice import Choice
from headway.server.config.config import ServerConfig
from headway.server.config.engine_options import engine_options
from headway.server.engine.client import EngineClient, EngineOptions
from headway.server.intake.service import Service
from headway.server.intake.tokenizing import AsyncTokenizer
from tests.server.engine.failing_device import BAD, WHY, WORST, Faulty
from tests.server.running_server import app_of, fake, serving, tokenizer, until

GOOD = [5, 6, 7]


def test_http_clients_see_a_failed_step_and_a_dead_engine_but_not_a_pause():
    config = ServerConfig(engine={"slots": 1, "context": 512, "threads": 1})

    async def scene(remote, client):
        async def ask(prompt):
            asked = {"prompt": prompt, "max_tokens": 2, "ignore_eos": True}
            answer = await client.post("/v1/completions", json=asked)
            return answer.status_code, answer.json().get("error", {}).get("message", "")

        async def health():
            answer = await client.get("/health")
            return answer.status_code, answer.json().get("error", {}).get("message", "")

        failed = 500, f"the engine failed: the step failed: {WHY}"
        assert await ask([BAD]) == failed
        assert await ask(GOOD) == (200, "")
        assert remote.load.free_blocks == remote.load.num_blocks

        os.kill(remote.pid, signal.SIGSTOP)
        paused = asyncio.create_task(ask(GOOD))
        while not remote.load.lanes["standard"].waiting:
            await asyncio.sleep(0)
        assert await health() == (200, ""), "a pause is not a fault yet"
        os.kill(remote.pid, signal.SIGCONT)
        assert await paused == (200, "")

        assert [await ask([BAD]), await ask([BAD])] == [failed] * 2
        down = 503, f"the engine is down: {WHY}"
        assert await asyncio.gather(ask([WORST]), ask(GOOD)) == [down] * 2, "a waiting request, too"
        assert await health() == await ask(GOOD) == down
        said = (await client.get("/metrics")).text
        outcomes = re.findall(r'headway_requests_total\{.*outcome="(\w+)".*\} ([1-9].*)', said)
        assert sorted(outcomes) == [("error", "5.0"), ("good", "2.0"), ("refused", "1.0")]

    async def main():
        remote = EngineClient(Faulty(EngineOptions(**engine_options(config))))
        service = Service(config, remote)
        try:
            welcome = await remote.start()
            service.model.ready(AsyncTokenizer(tokenizer(), EMBEDDED), welcome.eos)
            transport = httpx2.ASGITransport(app=app_of(service))
            async with (
                asyncio.timeout(60),
                httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
            ):
                await scene(remote, client)
        finally:
            await remote.close()
            service.close()

    asyncio.run(main())


def test_an_internal_error_in_an_answer_fails_only_its_call(monkeypatch):
    hear = Choice.hear

    def broken(choice, event):
        if choice.answer.request.prompt == (BAD,):
            raise KeyError("no such thing")
        return hear(choice, event)

    monkeypatch.setattr(Choice, "hear", broken)
    with serving(ServerConfig(), fake) as (url, service):

        async def both():
            async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
                bodies = [{"prompt": prompt, "max_tokens": 9} for prompt in ([BAD], GOOD)]
                return await asyncio.gather(
                    *[client.post("/v1/completions", json=body) for body in bodies]
                )

        failed, fine = asyncio.run(both())
        until(lambda: not service.model.engine.load.running)
        assert service.model.engine.load.free_blocks == service.model.engine.load.num_blocks
    said = failed.json()["error"]
    assert (failed.status_code, said["code"]) == (500, "fault") and "KeyError" in said["message"]
    assert fine.status_code == 200
