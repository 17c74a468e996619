"""A function behind HTTP, in a thread."""

import asyncio
import socket
import threading
from contextlib import contextmanager

from headway.server.config.config import ServerConfig
from headway.server.functions.app import make_app
from headway.server.functions.run import job_host, ledger_of
from headway.server.functions.service import made_service
from headway.server.functions.target import find
from headway.server.jobs.opening import open_jobs
from headway.server.listening.http_server import HttpServer
from tests.server.new_store import lay_out
from tests.server.running_server import quiet

MODULE = "tests.server.functions.functions_to_serve"


@contextmanager
def serving(name, config=None, around=lambda app: app):
    """Gives the function's URL and its service. around: what wraps the application."""
    config = config or ServerConfig()
    lay_out(config)
    service = made_service(find(f"{MODULE}:{name}"), config)
    ledger = ledger_of(service, config, quiet())
    jobs = open_jobs(config, job_host(service, config), quiet())
    began, kept = threading.Event(), {}

    async def serve():
        app = around(make_app(service, config, jobs, ledger))
        server = kept["server"] = HttpServer(app, config.server, 1_024)
        listening = socket.create_server(("127.0.0.1", 0))
        kept["url"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
        task = asyncio.create_task(server.serve([listening]))
        if ledger:
            ledger.start()
        if jobs:
            await jobs.start(app)
        began.set()
        await task
        if jobs:
            await jobs.close()
        if ledger:
            await ledger.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert began.wait(60)
        yield f"{kept['url']}/v1/functions/{name}", service
    finally:
        kept["server"].should_exit = True
        thread.join(30)
        service.close()
        assert not thread.is_alive()
