"""PostgreSQL for the tests of the store: one server for each worker, and new databases in it."""

from itertools import count

import pytest

from tests.postgresql import postgresql


@pytest.fixture(scope="session")
def new_postgres():
    """Makes an empty database, and returns its URL."""
    numbers = count(1)
    with postgresql() as url:
        import psycopg

        def new():
            name = f"headway_{next(numbers)}"
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return url.replace("/postgres?", f"/{name}?")

        yield new
