"""A front on its own loop, called over ASGI by clients that can leave or stop reading."""

import asyncio
import json
import threading

from headway.core.batch import Batch
from headway.executor.fake import FakeExecutor
from tests.server.running_server import BLOCK, Local, app_of, scheduler, service_of

LONG = {"prompt": [5, 6, 7], "max_tokens": 900, "ignore_eos": True}
BLOCKS = 512


class Paced(FakeExecutor):
    """The loop runs between steps, so that a client can leave a long answer."""

    loop: asyncio.AbstractEventLoop

    def submit(self, batch: Batch) -> int:
        turn = threading.Event()
        self.loop.call_soon_threadsafe(turn.set)
        assert turn.wait(30)
        return super().submit(batch)


def paced(config):
    executor = Paced(BLOCKS, BLOCK)
    executor.loop = asyncio.get_running_loop()
    return Local(scheduler(config, BLOCKS), executor)


async def until(holds):
    """Run the loop until the condition holds."""
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0)


class Client:
    """An ASGI client that can leave, or stop reading."""

    def __init__(self, app, body, headers=(), path="/v1/completions"):
        self.scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": [(b"content-type", b"application/json"), *headers],
            "http_version": "1.1", "scheme": "http", "server": ("h", 1), "client": ("c", 2),
        }  # fmt: skip
        self.body = json.dumps(body).encode()
        self.left, self.reads = asyncio.Event(), asyncio.Event()
        self.reads.set()
        self.status, self.said, self.headers = 0, b"", {}
        self._asked = False
        self.task = asyncio.create_task(app(self.scope, self.receive, self.send))

    async def receive(self):
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.said += message["body"]
            await self.reads.wait()


def inside(config, engine, scene):
    """Run a scene on its own loop; afterwards the engine must be empty."""

    async def play():
        local = engine(config)
        service = service_of(config, local)
        rows = []
        service.model.admission.listeners.append(lambda steps, requests: rows.extend(requests))
        try:
            await scene(app_of(service), service, rows)
            assert service.model.admission.open == 0
            await until(lambda: local.load.running == 0)
        finally:
            await asyncio.to_thread(local.live.close)
            service.close()
        local.live._engine.scheduler.check()
        assert local.load.free_blocks == BLOCKS

    asyncio.run(play())
