"""A stream's chunks bypass the middleware, and the client's answer is still complete."""

import asyncio

from headway.server.app import make_app
from headway.server.config.config import ServerConfig
from headway.server.http.direct_send import DirectSend
from headway.server.observe.access import AccessLog
from tests.server.asgi_client import Client, inside, paced

ASKED = {"prompt": [5, 6, 7], "max_tokens": 20, "ignore_eos": True, "stream": True}


class Counting:
    """Middleware that records the kind of each message it passes on."""

    def __init__(self, app):
        self.app, self.kinds = app, []

    async def __call__(self, scope, receive, send):
        async def counted(message):
            self.kinds.append(message["type"].removeprefix("http.response."))
            await send(message)

        await self.app(scope, receive, counted)


class Silent:
    def __getattr__(self, level):
        return lambda *args, **values: None


def test_only_a_streams_start_passes_the_middleware():
    async def scene(app, service, rows):
        for wrap, passed in ((DirectSend, ["start"]), (lambda app: app, None)):
            counting = Counting(AccessLog(make_app(service), Silent()))
            client = Client(wrap(counting), ASKED)
            await asyncio.wait_for(client.task, 30)
            assert client.status == 200 and client.headers["x-request-id"]
            assert client.said.endswith(b"data: [DONE]\n\n")
            assert client.said.count(b'"finish_reason":"length"') == 1
            if passed:
                assert counting.kinds == passed
            else:
                assert len(counting.kinds) > 2 and set(counting.kinds[1:]) == {"body"}

    inside(ServerConfig.model_validate({"lanes": {"all": {}}}), paced, scene)


def test_other_answers_pass_the_middleware_whole():
    async def scene(app, service, rows):
        counting = Counting(make_app(service))
        client = Client(DirectSend(counting), ASKED | {"stream": False})
        await asyncio.wait_for(client.task, 30)
        assert counting.kinds == ["start", "body"]

    inside(ServerConfig.model_validate({"lanes": {"all": {}}}), paced, scene)
