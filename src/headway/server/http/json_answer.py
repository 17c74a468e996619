"""A call's answer as one JSON object, sent when it is complete."""

import asyncio
from collections.abc import Iterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.server.answering.call import Call
from headway.server.http.disconnect import Client


async def json_answer(call: Call, client: Client) -> Response:
    """Wait for the whole answer. Raises Problem.

    An answer with log-probabilities or vectors can be large and is sent in pieces. The response
    then closes the client itself, after the last piece.
    """
    await call.wait()
    if call.problem:
        raise call.problem
    if call.is_long:
        return PiecewiseResponse(call.response(), client, call.headers)
    client.close()
    return Response("".join(call.response()), 200, call.headers, "application/json")


class PiecewiseResponse(Response):
    """A long body. Each piece is made after the previous one was sent, and other tasks get a turn
    in between. No more are made for a client that has disconnected."""

    def __init__(self, pieces: Iterator[str], client: Client, headers: dict[str, str]) -> None:
        super().__init__(b"", 200, headers, "application/json")
        del self.headers["content-length"]
        self._pieces, self._client = pieces, client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._send(send)
        finally:
            self._client.close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for piece in self._pieces:
            if body := piece.encode():  # else the piece was only computed
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await asyncio.sleep(0)
            if self._client.gone:
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
