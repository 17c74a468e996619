"""A server whose jobs are in a PostgreSQL that no longer answers."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import httpx2
import psycopg

from headway.server import store_thread
from headway.server.jobs import service
from tests.postgresql import postgresql
from tests.server.jobs.test_jobs import config_of
from tests.server.running_server import fake, serving, until

OTHERS = "SELECT pid FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()"


@contextmanager
def stopped(where):
    """Stop the processes of PostgreSQL that serve other connections."""
    with psycopg.connect(where) as connection:
        pids = [row[0] for row in connection.execute(OTHERS)]
    assert pids
    for each in pids:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in pids:
            os.kill(each, signal.SIGCONT)


def listed(url):
    with suppress(httpx2.HTTPError):
        httpx2.get(f"{url}/v1/files", timeout=60)


def test_a_server_shuts_down_although_its_store_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "CLOSING", 0.1)
    monkeypatch.setattr(store_thread, "CLOSING", 0.1)
    with (
        postgresql() as where,
        ThreadPoolExecutor(1) as callers,
        ExitStack() as until_it_has_ended,
        serving(config_of(tmp_path, store=where), fake) as (url, front),
    ):
        until(lambda: front.jobs.keeper and front.jobs.keeper.leased.is_set())
        until_it_has_ended.enter_context(stopped(where))
        callers.submit(listed, url)
        until(lambda: not front.jobs.store._thread.calls.empty())
