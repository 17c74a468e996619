"""Freed memory is given back to the system."""

import asyncio
import gc
import sys
import threading
import weakref
from pathlib import Path

import httpx2
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from headway.core.batch import Event, Logprob
from headway.llm.llm import EMBEDDED
from headway.server import heap
from headway.server.answering.call import Call
from headway.server.config.config import ServerConfig
from headway.server.heap import LARGE, SCORED, BodyTrimmer, ScoreTrimmer
from headway.server.intake.tokenizing import AsyncTokenizer
from headway.server.protocol.problem import Problem
from tests.server.asgi_client import Client, inside
from tests.server.asgi_client import until as turns
from tests.server.http.raw_client import Hostile, body
from tests.server.running_server import fake, serving, tokenizer, until


def resident():
    """The resident memory in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096 / 1e6


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_the_memory_of_a_long_text_is_given_back_after_tokenizing():
    texts = AsyncTokenizer(tokenizer(), EMBEDDED)
    # Three tokens per character, and more than a hundred bytes per token.
    text = ("<|pad|>" + "".join(map(chr, range(0xE000, 0xF900)))) * 110
    asyncio.run(texts.encode(text[:5_000]))
    heap.give_back()
    before = resident()
    (ids,) = asyncio.run(texts.encode(text))
    assert len(ids) > 2_000_000
    del ids
    assert resident() - before < 100
    texts.close()


def all_problems():
    return [each for each in gc.get_objects() if type(each) is Problem]


@pytest.fixture
def problems():
    """Turn the collector off; gives a function that lists the problems made since then and still
    alive, each with all the frames that it has passed through."""
    gc.collect()
    gc.disable()
    before = all_problems()  # problems of earlier tests, kept so that no new one gets their address
    known = {id(each) for each in before}
    yield lambda: [each for each in all_problems() if id(each) not in known]
    gc.enable()


@pytest.mark.parametrize(
    "path, asked", [("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [5]})]
)
def test_a_client_that_left_leaves_no_text_to_the_collector(path, asked, problems):
    async def never(*given):
        await asyncio.Event().wait()

    async def scene(app, service, rows):
        service.model.tokenizer.encode = never
        client = Client(app, asked, path=path)
        await turns(lambda: service.held.size)
        client.left.set()
        await client.task
        assert client.status == 499 and not problems()

    inside(ServerConfig(), fake, scene)


def test_a_request_refused_after_reading_leaves_no_prompt_to_the_collector(problems):
    async def scene(app, service, rows):
        client = Client(app, {"prompt": [5] * 4_000})
        await client.task
        assert client.status == 400 and not problems()

    inside(ServerConfig(), fake, scene)


def test_a_body_refused_to_make_room_is_not_left_to_the_collector(problems):
    limits = {"body_bytes": 100_000, "bodies_bytes": 100_000}
    with serving(ServerConfig(server={"limits": limits}), fake) as (url, service):
        first = Hostile(url).say(body(100_000), b" " * 90_000)
        until(lambda: service.bodies.held_bytes == 90_000)
        second = Hostile(url).say(body(100_000), b" " * 20_000)
        assert first.status() == 429
        until(lambda: not problems())
        for each in (first, second):
            each.close()


def test_memory_of_large_bodies_is_given_back_once_for_many(monkeypatch):
    given, trimmer = [], BodyTrimmer()
    monkeypatch.setattr(heap, "give_back", lambda: given.append(threading.current_thread()))
    monkeypatch.setattr(heap, "LATER", 0.0)

    async def scene():
        trimmer.add(LARGE - 1)
        assert not trimmer._due
        for _ in range(3):
            trimmer.add(LARGE)
        assert trimmer._due and not given
        await turns(lambda: given)
        assert not trimmer._due
        trimmer.add(LARGE)
        await turns(lambda: len(given) == 2)

    asyncio.run(scene())
    assert len(given) == 2 and threading.main_thread() not in given


def test_the_trimmer_hears_of_a_body_when_it_is_read_and_when_it_is_done(monkeypatch):
    heard = []
    monkeypatch.setattr(BodyTrimmer, "add", lambda trimmer, size: heard.append(size))

    async def scene(app, service, rows):
        for asked, times in (({"prompt": "word"}, 2), ({"promt": "word"}, 1)):
            heard.clear()
            client = Client(app, asked, path="/tokenize")
            await client.task
            assert heard == [len(client.body)] * times

    inside(ServerConfig(), fake, scene)


def test_memory_of_scores_is_given_back_when_nothing_runs(monkeypatch):
    given = []
    monkeypatch.setattr(heap, "give_back", lambda: given.append(len(steps)))
    steps, left = [], ScoreTrimmer()
    few, many = (Event("a", prompt_logprobs=(Logprob(-1.0),) * n) for n in (SCORED // 2, SCORED))
    for events, running in [
        ([few], 0),
        ([], 0),
        ([few, Event("b", (5,))], 1),
        ([Event("b", (5,))], 1),
        ([Event("b", (5,))], 0),  # now
        ([], 0),
        ([many], 0),  # and now
        ([few], 0),
    ]:
        steps.append(events)
        left.after(events, running)
    assert given == [5, 7]


def test_a_connection_keeps_nothing_of_its_last_large_request():
    """Reading is paused while a large body waits, and the application resumes it."""
    asked = {"prompt": "word " * 20_000, "truncate_prompt_tokens": 5, "max_tokens": 2}
    calls = []
    with serving(ServerConfig(), fake) as (url, service):
        enter = service.model.admission.enter

        def entering(call):
            calls.append(weakref.ref(call))
            enter(call)

        service.model.admission.enter = entering
        with httpx2.Client(base_url=url, timeout=60) as client:
            assert client.post("/v1/completions", json=asked).status_code == 200
            assert client.get("/health").status_code == 200
            (call,) = calls
            until(lambda: gc.collect() is not None and call() is None)


@pytest.mark.parametrize(
    "asked, status",
    [({"max_tokens": 2}, 200), ({"max_tokens": 2, "stream": True}, 200), ({"n": 0}, 400)],
)
def test_an_answered_request_is_not_left_to_the_collector(asked, status):
    def left():
        kinds = RequestResponseCycle, Call
        return [each for each in gc.get_objects() if type(each) in kinds and each not in before]

    with serving(ServerConfig(), fake) as (url, _), httpx2.Client(base_url=url) as client:
        gc.collect()
        gc.disable()
        before: list[object] = []
        before += left()
        try:
            for _ in range(5):
                answer = client.post("/v1/completions", json={"prompt": [5, 6], **asked})
                assert answer.status_code == status
            until(lambda: len(left()) <= 1)  # the connection's latest request
        finally:
            gc.enable()
