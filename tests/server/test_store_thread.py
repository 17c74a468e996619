"""The thread of a store: what it is asked, and an end that waits for no call that hangs."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

from headway.server import store_thread
from headway.server.store_thread import StoreThread
from headway.store.database import Database, StoreError


@pytest.fixture
def database(tmp_path):
    return Database(str(tmp_path / "s.db"))


def test_calls_are_made_one_after_another(database):
    async def main():
        thread = StoreThread(database, "store")
        go, made = threading.Event(), []
        calls = [asyncio.create_task(thread.ask(go.wait, 60))]
        calls += [asyncio.create_task(thread.ask(made.append, i)) for i in range(3)]
        wrong = asyncio.create_task(thread.ask(int, "x"))
        await asyncio.sleep(0)
        calls[2].cancel()
        await asyncio.wait([calls[2]])  # its future is cancelled by then, too
        go.set()
        with pytest.raises(ValueError, match="invalid literal"):
            await wrong
        assert made == [0, 2]
        assert await thread.close()
        with pytest.raises(StoreError, match="is closed"):
            await thread.ask(int)

    asyncio.run(main())
    Database(database.name.removeprefix("sqlite:///")).close()  # its lock is free


class Body:
    """Something that a call is asked to store."""


def test_a_call_that_is_given_up_drops_what_it_holds_before_its_turn(database):
    async def main():
        thread, go, body = StoreThread(database, "store"), threading.Event(), Body()
        held = weakref.ref(body)
        first = asyncio.create_task(thread.ask(go.wait, 60))
        second = asyncio.create_task(thread.ask(id, body))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        del body, second
        gc.collect()  # the cancelled task's traceback
        assert held() is None
        go.set()
        await first
        assert await thread.close()

    asyncio.run(main())


def test_a_stop_iteration_reaches_its_caller_too(database):
    """asyncio takes it for no future: whoever awaits it would wait for ever."""

    async def main():
        thread = StoreThread(database, "store")
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(thread.ask(next, iter(())), 30)
        assert await thread.close()

    asyncio.run(main())


def test_a_call_that_hangs_is_left_behind(database, monkeypatch):
    monkeypatch.setattr(store_thread, "CLOSING", 0.01)
    go = threading.Event()

    async def main():
        thread = StoreThread(database, "store")
        asked = [asyncio.create_task(thread.ask(call)) for call in (go.wait, int)]
        await asyncio.sleep(0)
        assert not await thread.close()
        said = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in said] == [StoreError] * 2
        assert "does not answer" in str(said[0])
        go.set()
        await asyncio.wrap_future(thread._ended)

    asyncio.run(main())


HANGING = """
import asyncio, sys, threading
from headway.server import store_thread
from headway.store.database import Database

async def main():
    thread = store_thread.StoreThread(Database(sys.argv[1]), "store")
    thread.submit(threading.Event().wait)
    assert not await thread.close()

store_thread.CLOSING = 0.01
asyncio.run(main())
"""


def test_a_call_that_hangs_does_not_keep_the_process(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HANGING, tmp_path / "s.db"]
    assert subprocess.run(command, env=environment, timeout=60).returncode == 0
