"""Overlapping transactions in PostgreSQL, for the tests of the store."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from tests.server.running_server import until

WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


@pytest.fixture
def together(monkeypatch):
    """A function that runs two calls in overlapping PostgreSQL transactions. It holds the first at
    module.name until the second waits for a lock or arrives there too. It returns both results and
    whether the second waited."""

    def run(url, module, name, first, second):
        import psycopg

        entered, go, real = [], Event(), getattr(module, name)

        def held(*given):
            entered.append(given)
            assert go.wait(60)
            return real(*given)

        monkeypatch.setattr(module, name, held)
        with psycopg.connect(url, autocommit=True) as looking, ThreadPoolExecutor(2) as threads:

            def waits():
                return looking.execute(WAITING).fetchone()[0] > 0

            try:
                calls = [threads.submit(first)]
                until(lambda: entered)
                calls.append(threads.submit(second))
                until(lambda: len(entered) == 2 or waits())
                waited = len(entered) == 1
            finally:
                go.set()
            return [each.result() for each in calls], waited

    return run
