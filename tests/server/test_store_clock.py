"""Servers that share PostgreSQL, and whose own clocks differ by five minutes."""

import asyncio
import socket
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from sqlalchemy import delete, select

from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.server.config.durations import SECOND
from headway.server.intake.limits.spend import SpendControl
from headway.server.jobs.keeper import Keeper
from headway.server.jobs.metrics import JobMetrics
from headway.server.jobs.store import JobStore
from headway.server.ledger.writer import LedgerWriter
from headway.store.database import Database
from headway.store.ids import new_id
from headway.store.jobs import IN_PROGRESS, Job
from headway.store.ledger.flush import Flush
from headway.store.ledger.ledger_tables import WRITERS
from tests.postgresql import postgresql
from tests.server.running_server import fake, quiet, serving, until

AHEAD = 300


@pytest.fixture(scope="module")
def where():
    with postgresql() as url:
        yield url


@contextmanager
def ahead():
    """The clock of this process is ahead, but for the monotonic one."""
    unix, epoch = clock.unix, clock.epoch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "unix", lambda: unix() + AHEAD)
        patch.setattr(clock, "epoch", lambda: epoch() + AHEAD * SECOND)
        patch.setattr(socket, "gethostname", lambda: "elsewhere")
        yield


def test_a_job_expires_by_the_stores_clock(where):
    settings = ServerConfig(jobs={"store": where}).jobs
    mine = JobStore(settings, lambda *given: None, lambda *given: None)
    now = mine.unix()
    about = {"window": 60, "created_at": now, "expires_at": now + 60, "status": IN_PROGRESS}
    job = mine.jobs.add(Job(new_id("batch_", now), "t", "k", True, "/v1/x", total=1, **about))

    async def look():
        other = JobStore(settings, lambda *given: None, lambda *given: None)
        nobody = SimpleNamespace(running={})
        await Keeper(other, nobody, settings, JobMetrics(), quiet())._look(other.unix())
        await other.close()

    with ahead():
        asyncio.run(look())
    assert mine.jobs.get("t", job.id).status == IN_PROGRESS
    asyncio.run(mine.close())


def test_the_times_of_the_ledger_are_by_the_stores_clock(where):
    """Else the time that a dead server has lost would be wrong by what their clocks differ."""
    mine = Database(where)
    with mine.begin() as connection:
        connection.execute(delete(WRITERS))
    with ahead(), serving(ServerConfig(ledger={"url": where}), fake) as (_, front):
        until(lambda: front.ledger.writers[0]._until)
    with mine.begin() as connection:
        found = connection.execute(select(WRITERS.c.until)).scalar_one()
    assert abs(found / SECOND - mine.now()) < AHEAD / 2
    mine.close()


def test_a_server_of_the_ledger_lives_by_the_stores_clock(where):
    settings = ServerConfig(ledger={"url": where}).ledger

    def writer():
        spend = SpendControl((), ServerConfig().prices, clock.day)
        return LedgerWriter(settings, Database(where), spend, quiet(), [])

    mine = writer()
    with mine._database.begin() as connection:
        connection.execute(delete(WRITERS))
    mine._take = lambda number: Flush(number, clock.epoch() + clock.now())
    assert mine._write()
    with ahead():
        other = writer()
        other.open()
    with mine._database.begin() as connection:
        assert connection.execute(select(WRITERS.c.closed)).scalars().all() == [False]
    for each in (mine, other):
        each.close()
