"""An event loop in virtual time."""

import asyncio

import pytest

from headway.errors import StuckError
from headway.sim.loop import run


def test_sleeping_takes_only_virtual_time_and_keeps_the_order():
    async def main():
        loop, told = asyncio.get_running_loop(), []

        async def later(name, seconds):
            await asyncio.sleep(seconds)
            told.append((name, loop.time()))

        await asyncio.gather(later("b", 7_200), later("a", 3_600.5), later("now", 0))
        return told

    assert run(main()) == [("now", 0.0), ("a", 3_600.5), ("b", 7_200.0)]


def test_timeouts_are_of_virtual_time():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.get_running_loop().create_future()
        return asyncio.get_running_loop().time()

    assert run(main()) == 5.0


def test_a_task_that_waits_for_ever_is_reported_as_stuck():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match="nothing will ever happen"):
        run(main())
