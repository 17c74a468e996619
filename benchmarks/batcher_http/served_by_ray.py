"""The function as a deployment of Ray Serve, in Ray's own environment.

It sleeps in the replica's event loop, since a blocking one would hold up the replica's intake.
"""

import asyncio
import os
import signal
import sys
from typing import Any

import ray
from ray import serve
from starlette.responses import JSONResponse

SIZE, BASE, EACH = 32, 0.005, 0.0002  # items; seconds
WAIT = float(os.environ["WAIT_MS"]) / 1e3
ONGOING = 10_000  # requests of the replica: more than the client has connections


class Work:
    async def __call__(self, request: Any) -> JSONResponse:  # so it has a content-length
        return JSONResponse(await self.many(await request.json()))

    # One batch at a time, as the others do.
    @serve.batch(  # type: ignore[untyped-decorator]
        max_batch_size=SIZE, batch_wait_timeout_s=WAIT, max_concurrent_batches=1
    )
    async def many(self, items: list[int]) -> list[int]:
        await asyncio.sleep(BASE + EACH * len(items))
        return items


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    ray.init(include_dashboard=False, _node_ip_address="127.0.0.1")
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    try:
        deployed = serve.deployment(max_ongoing_requests=ONGOING)(Work)
        serve.run(deployed.bind(), route_prefix="/work")
        signal.pause()
    finally:
        serve.shutdown()
        ray.shutdown()
