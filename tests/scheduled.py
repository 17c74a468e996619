"""The scheduled server of benchmarks.client_accuracy, in a thread of this process."""

import asyncio
import threading
from contextlib import contextmanager

from benchmarks.client_accuracy.scheduled_server import by_length, listening


@contextmanager
def scheduled(planner=by_length, tokenizes=True):
    """Gives the server's URL. planner: from a body and headers to a Plan."""
    began, kept = threading.Event(), {}

    async def serve():
        async with listening(0, planner, tokenizes) as server:
            kept["port"] = server.sockets[0].getsockname()[1]
            kept["loop"], kept["over"] = asyncio.get_running_loop(), asyncio.Event()
            began.set()
            await kept["over"].wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert began.wait(30)
    try:
        yield f"http://127.0.0.1:{kept['port']}"
    finally:
        kept["loop"].call_soon_threadsafe(kept["over"].set)
        thread.join(30)
