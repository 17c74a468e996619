"""A server whose own tasks fail: it ends, and does not stay behind engines that nobody restarts."""

import asyncio
from types import SimpleNamespace

import pytest

from headway.server.backends import Backends
from headway.server.config.config import ServerConfig
from headway.server.observe.logs import logger
from headway.server.run import Server


async def nothing(backends, *given):
    return []


async def fails(backends, *given):
    raise KeyError("unforeseen")


async def waits(backends):
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "stand, drain, why",
    [(fails, nothing, "restarts have failed"), (waits, fails, "the drain has failed")],
)
def test_a_server_whose_restarts_or_drain_fail_unforeseen_ends_with_status_1(
    monkeypatch, stand, drain, why
):
    for name, does in (("start", nothing), ("stand", stand), ("drain", drain)):
        monkeypatch.setattr(Backends, name, does)
    monkeypatch.setattr(Server, "_greet", lambda server, *given: None)
    lines = []
    config = ServerConfig(server={"port": 0}, logs={"format": "json"})

    async def main():
        server = Server(config, SimpleNamespace(log=logger("info", lines.append)))
        running = asyncio.create_task(server.run())
        async with asyncio.timeout(30):
            while not server._standing:
                await asyncio.sleep(0)
            if stand is waits:
                server.leave()  # as on SIGTERM
            return await running

    assert asyncio.run(main()) == 1
    (said,) = [line for line in lines if line["level"] == "critical"]
    assert said["event"].startswith(why) and "unforeseen" in said["exception"]
