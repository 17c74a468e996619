"""What vLLM's server needs to know a request's lane: middleware that sets `priority` by a header.

`headway bench` sends the same bytes to both servers. vLLM takes a priority in the body alone.
"""

import json
import os

from starlette.types import ASGIApp, Message, Receive, Scope, Send

FIRST = "FIRST_LANE"  # a variable


class LanePriority:
    """ASGI middleware for `vllm serve --middleware`. The lane that FIRST names comes first."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.first = app, os.environ[FIRST].encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        lane = headers.get(b"x-headway-lane")
        if scope["type"] != "http" or not lane:
            await self.app(scope, receive, send)
            return
        whole, more = b"", True
        while more:
            message = await receive()
            whole += message.get("body", b"")
            more = message.get("more_body", False)
        said = json.loads(whole) | {"priority": int(lane != self.first)}
        body, told = json.dumps(said).encode(), False
        headers[b"content-length"] = str(len(body)).encode()

        async def once() -> Message:
            nonlocal told
            if told:
                return await receive()  # the client has left
            told = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app({**scope, "headers": list(headers.items())}, once, send)
