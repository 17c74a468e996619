"""Set up for every test: what Hypothesis draws, torch's threads, and how HTTP clients start.
And PostgreSQL, for those that ask for it."""

import gc
import os
from contextlib import suppress
from functools import cache
from itertools import count

import pytest
from hypothesis import settings

from tests.held import Held
from tests.postgresql import postgresql

# Examples have no time limit: how long one takes depends on what else the machine does. The suite
# draws the same examples in every run, so it passes or fails for everybody; `make soak` draws more.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("soak", deadline=None, max_examples=3_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# Read once, when torch is imported. Two workers with a thread for every core wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Each HTTP client would read all certificates of this machine, for 30 ms. Tests use no TLS.
with suppress(ImportError):  # tests/core runs without it
    import httpcore2

    httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)

# A client gives up after five seconds unless told otherwise, and a busy machine takes longer than
# that. All clients share this one default.
with suppress(ImportError):
    from httpx2 import Client

    patience = Client.__init__.__kwdefaults__["timeout"]
    patience.connect = patience.read = patience.write = patience.pool = 60.0


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What the tests import stays: looking through it for cycles takes 6 s while it grows, and
    0.2 s each time later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture
def held():
    made = Held()
    yield made
    made.free()


@pytest.fixture(scope="session")
def new_postgres():
    """A function that makes an empty database and returns its URL: one server per test worker."""
    numbers = count(1)
    with postgresql() as url:
        import psycopg

        def new():
            name = f"headway_{next(numbers)}"
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return url.replace("/postgres?", f"/{name}?")

        yield new
