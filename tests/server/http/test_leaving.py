"""A hundred clients at once, a third of which leave at random moments. The model runs in float32,
so that the texts can be compared with those of an undisturbed greedy run token for token."""

import asyncio
import json
from random import Random

import httpx2
import pytest

from headway.llm.llm import LLM
from headway.llm.options import Options
from headway.server.config.config import ServerConfig
from tests.server.running_server import embedded, serving, until

CLIENTS, TOKENS = 100, 16  # three times as many as run at once
WORDS = ("json", "module", "reads", "file", "returns", "text", "list", "lines", "each", "error")
STAYS, WHOLE, STREAM = "stays", "leaves a whole answer", "leaves a stream"


def prompts():
    random = Random(7)
    return [" ".join(random.choices(WORDS, k=random.randint(3, 40))) for _ in range(CLIENTS)]


def ways():
    """Each client's fate, and the number of a stream's chunks that it reads before it leaves."""
    random = Random(11)
    fates = [STAYS] * (CLIENTS - CLIENTS // 3) + [WHOLE, STREAM, STREAM] * (CLIENTS // 9)
    fates += [WHOLE] * (CLIENTS - len(fates))
    random.shuffle(fates)
    return [(fate, random.choice([0, 0, 1, 3, 6, 11])) for fate in fates]


@pytest.fixture(scope="module")
def undisturbed():
    with LLM(dtype="float32", slots=32) as llm:
        answers = llm.generate(prompts(), Options(max_tokens=TOKENS, ignore_eos=True))
        yield [answer.text for answer in answers]


async def stream(client, asked, enough):
    """The text of the whole stream, or None once more than `enough` chunks have come."""
    said = []
    async with client.stream("POST", "/completions", json={**asked, "stream": True}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                return "".join(said)
            if line.startswith("data: "):
                said.append(json.loads(line[6:])["choices"][0]["text"])
                if len(said) > enough:
                    return None
    raise AssertionError("the stream has no end")


async def one(client, prompt, fate, chunks, heard):
    asked = {"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
    if fate is STAYS:
        return await stream(client, asked, TOKENS + 1)
    if fate is STREAM:
        return await stream(client, asked, chunks)
    asking = asyncio.create_task(client.post("/completions", json=asked))
    await heard.wait()  # one client is done, and this request waits or runs
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return None


async def crowd(url):
    heard = asyncio.Event()

    async def told(fate, *about):
        said = await one(*about)
        heard.set()
        return said

    limits = httpx2.Limits(max_connections=None)
    headers = {"X-Headway-Lane": "offline"}
    async with httpx2.AsyncClient(
        base_url=f"{url}/v1", headers=headers, limits=limits, timeout=120
    ) as client:
        asked = zip(prompts(), ways(), strict=True)
        calls = [told(fate, client, text, fate, n, heard) for text, (fate, n) in asked]
        return await asyncio.gather(*calls)


def test_clients_that_leave_free_all_blocks_and_change_no_other_clients_text(undisturbed):
    rows = []
    with serving(ServerConfig(), embedded) as (url, service):
        service.model.admission.listeners.append(lambda steps, requests: rows.extend(requests))
        said = asyncio.run(crowd(url))
        load = service.model.engine
        until(
            lambda: (
                not service.model.admission.open and not load.load.running and len(rows) == CLIENTS
            )
        )
        assert load.load.free_blocks == load.load.num_blocks
        assert all(not lane.waiting and not lane.tokens for lane in load.load.lanes.values())
    stayed = [i for i, (fate, _) in enumerate(ways()) if fate is STAYS]
    assert len(stayed) == CLIENTS - CLIENTS // 3
    assert [said[i] for i in stayed] == [undisturbed[i] for i in stayed]
    assert all(said[i] is None for i in range(CLIENTS) if i not in set(stayed))
    ends = [row.finish for row in rows]
    assert ends.count("cancelled") >= CLIENTS // 9, (
        "they have left and have not only stopped reading"
    )
    assert len({row.id for row in rows}) == CLIENTS, "no request is lost"
