"""One batcher and its client, in a process of its own. Writes what it measured as JSON.

Ray's function sleeps in its event loop, since a blocking one would hold up the replica's intake.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

SIZE, BASE, EACH = 32, 0.005, 0.0002  # items; seconds
IDEAL = SIZE / (BASE + SIZE * EACH)
LOADS = (0.8, 1.5)  # of the ideal
WARM = 2.0  # seconds at the beginning that are not counted
MOST_WAITING = 256  # items, where a line has a bound

Ask = Callable[[int], Awaitable[Any]]


class Full(Exception):
    """The batcher had no place for the item."""


class NotSent(Exception):
    """The client had no connection for the item: the server has never heard of it."""


def function(items: list[int]) -> list[int]:
    time.sleep(BASE + EACH * len(items))
    return items


async def offer(ask: Ask, rate: float, seconds: float, seed: int) -> dict[str, float]:
    """Poisson arrivals. Times count from the scheduled arrival, for items that come after WARM.

    Ends the process if none of these was answered: their p95 would be no number.
    """
    draw, loop = random.Random(seed), asyncio.get_running_loop()
    begin = loop.time() + 0.1
    due, end = begin, begin + WARM + seconds
    times, ends, refused, not_sent, counted = list[float](), list[float](), 0, 0, 0
    tasks = set[asyncio.Task[None]]()

    async def one(item: int, due: float) -> None:
        nonlocal refused, not_sent, counted
        counts = due >= begin + WARM
        counted += counts
        try:
            await ask(item)
        except Full:
            refused += counts
            return
        except NotSent:
            not_sent += counts
            return
        now = loop.time()
        ends.append(now)
        if counts:
            times.append(now - due)

    item = 0
    while due < end:
        await asyncio.sleep(max(0.0, due - loop.time()))
        while due <= loop.time() and due < end:
            task = asyncio.create_task(one(item, due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            item += 1
            due += draw.expovariate(rate)
    await asyncio.gather(*tasks)
    if not times:
        raise SystemExit(f"none of {counted} items was answered")
    ranked = sorted(times)
    inside = sum([begin + WARM <= each < end for each in ends])
    shares = {"refused": refused / counted, "not_sent": not_sent / counted}
    ranks = {f"p{share}": 1e3 * ranked[len(ranked) * share // 100] for share in (50, 95, 99)}
    return {"rate": inside / seconds, **shares, **ranks}


async def headway(wait: float, rate: float, seconds: float, seed: int) -> dict[str, float]:
    from headway import Batcher
    from headway.errors import RefusedError

    with Batcher(function, size=SIZE, window=wait, max_waiting=MOST_WAITING) as batcher:

        async def ask(item: int) -> Any:
            try:
                return await batcher.acall(item)
            except RefusedError as error:
                raise Full from error

        return await offer(ask, rate, seconds, seed)


async def batched(wait: float, rate: float, seconds: float, seed: int) -> dict[str, float]:
    from batched import aio

    decorated = aio.dynamically(function, batch_size=SIZE, timeout_ms=1e3 * wait)
    return await offer(decorated, rate, seconds, seed)


def ray_serve(wait: float, rate: float, seconds: float, seed: int) -> dict[str, float]:
    from ray import serve

    async def called(self: Any, items: list[int]) -> list[int]:
        await asyncio.sleep(BASE + EACH * len(items))
        return items

    batch = serve.batch(max_batch_size=SIZE, batch_wait_timeout_s=wait)
    deployed = serve.deployment(max_ongoing_requests=10_000)(
        type("Deployed", (), {"__call__": batch(called)})
    )
    handle = serve.run(deployed.bind())

    async def ask(item: int) -> Any:
        return await handle.remote(item)

    try:
        return asyncio.run(offer(ask, rate, seconds, seed))
    finally:
        serve.shutdown()


def main() -> None:
    name, wait, load, length, number, said = sys.argv[1:]
    given = float(wait) / 1e3, float(load) * IDEAL, float(length), int(number)
    if name == "ray-serve":
        answer = ray_serve(*given)
    else:
        answer = asyncio.run((batched if name == "batched" else headway)(*given))
    Path(said).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
