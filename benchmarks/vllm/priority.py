"""What vLLM's server needs to know a request's lane: middleware that sets `priority` by a header.

`headway bench` sends the same bytes to both servers. vLLM takes a priority in the body alone.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from benchmarks.vllm.traffic import LANES

Message = MutableMapping[str, Any]
PRIORITIES = {name.encode(): at for at, name in enumerate(LANES)}  # the lower, the earlier


class LanePriority:
    """ASGI middleware for `vllm serve --middleware`. The first of LANES comes first."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        headers = dict(scope.get("headers", ()))
        lane = headers.get(b"x-headway-lane")
        if scope["type"] != "http" or lane not in PRIORITIES:
            await self.app(scope, receive, send)
            return
        whole, more = b"", True
        while more:
            message = await receive()
            whole += message.get("body", b"")
            more = message.get("more_body", False)
        said = json.loads(whole) | {"priority": PRIORITIES[lane]}
        body, told = json.dumps(said).encode(), False
        headers[b"content-length"] = str(len(body)).encode()

        async def once() -> Message:
            nonlocal told
            if told:
                return await receive()  # the client has left
            told = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app({**scope, "headers": list(headers.items())}, once, send)
