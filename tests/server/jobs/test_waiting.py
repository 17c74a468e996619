"""Callers that wait for the ends of jobs, and how often the store is asked for them."""

import asyncio
from types import SimpleNamespace

import pytest

from headway.server.jobs import waiting
from headway.server.jobs.waiting import Waiting
from headway.store.database import StoreError


class Store:
    """Records which jobs it is asked for. It is away at the second look."""

    jobs = SimpleNamespace(ended="ended")

    def __init__(self):
        self.asked, self.over = [], []

    async def ask(self, what, jobs):
        self.asked.append(jobs)
        if len(self.asked) == 2:
            raise StoreError("away")
        return self.over


def test_the_store_is_asked_once_for_all_callers_that_wait(monkeypatch):
    monkeypatch.setattr(waiting, "LOOK", 0)

    async def main():
        store = Store()
        waits = Waiting(store)
        mine, others = (
            [asyncio.create_task(waits.wait(job, 60)) for _ in range(50)] for job in ("a", "b")
        )
        while len(store.asked) < 3:
            await asyncio.sleep(0)
        assert store.asked == [["a", "b"]] * 3 and not any(each.done() for each in mine + others)
        store.over = ["a"]
        await asyncio.wait(mine)
        assert not any(each.done() for each in others)
        await waits.wait("c", 0)
        store.over = ["b"]
        await asyncio.wait(others)
        while waits._looking:
            await asyncio.sleep(0)
        count = len(store.asked)
        await waits.wait("c", 0.001)  # a task looks again
        assert len(store.asked) > count and not waits._ends and not waits._callers

    asyncio.run(asyncio.wait_for(main(), 60))


def test_after_an_unforeseen_error_the_next_caller_has_the_store_asked_again(monkeypatch):
    monkeypatch.setattr(waiting, "LOOK", 0)

    async def main():
        store = Store()
        asked, fails = store.ask, [True]

        async def ask(what, jobs):
            if fails:
                fails.pop()
                raise RuntimeError("a fault")
            return await asked(what, jobs)

        store.ask, store.over = ask, ["a"]
        waits = Waiting(store)
        first = asyncio.create_task(waits.wait("a", 60))
        while fails:
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="a fault"):
            await waits._looking
        await waits.wait("a", 60)
        await first

    asyncio.run(asyncio.wait_for(main(), 60))
