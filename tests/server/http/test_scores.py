"""Thousands of log-probabilities: bounded, in columns, and written in pieces."""

import asyncio
import json
import pickle
import tracemalloc

import httpx2
import pytest

from headway.core.batch import Logprob
from headway.executor.logprobs import LogprobColumns
from headway.server.config.config import ServerConfig
from headway.server.http import sse
from headway.server.protocol.logprobs import PIECE, Scores, chat_logprobs, pieces, text_logprobs
from tests.server.asgi_client import Client, inside, until
from tests.server.running_server import Permitted, app_of, embedded, service_of, serving

ROWS = [Logprob(-0.5 * i, tuple((i + j, -float(j)) for j in range(20))) for i in range(700)]


def spell(token):
    return f"<{token}>"


def test_columns_give_back_the_rows_they_were_made_of():
    scored = LogprobColumns()
    for begin in range(0, 700, 70):
        part = LogprobColumns()
        part.extend(ROWS[begin : begin + 70])
        scored.extend(pickle.loads(pickle.dumps(part)))
    assert [*scored] == ROWS and scored[-1] == ROWS[-1] and [*scored[5:9]] == ROWS[5:9]
    assert [*scored[690:800]] == ROWS[690:] and not scored[700:] and not scored[9:5]
    with pytest.raises(IndexError):
        scored[700]
    scored.clear()
    assert not scored


def test_columns_take_less_than_300_bytes_a_row():
    tracemalloc.start()
    try:
        scored = LogprobColumns()
        scored.extend(ROWS)
        assert tracemalloc.get_traced_memory()[0] < 300 * len(ROWS)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("lead", [0, 1])
def test_logprobs_written_in_pieces_equal_those_written_at_once(lead):
    scores = Scores(range(700 + lead), ROWS, spell, 20)
    made = [*pieces(False, scores)]
    assert len(made) > 4 * 700 * 21 / PIECE
    assert json.loads("".join(made)) == json.loads(json.dumps(text_logprobs(scores, 0)))
    if not lead:
        assert json.loads("".join(pieces(True, scores))) == chat_logprobs(scores)


@pytest.fixture(scope="module")
def url():
    limits = {"logprobs": 10_000}
    with serving(ServerConfig(server={"limits": limits}), embedded) as (url, _):
        yield url


@pytest.mark.parametrize(
    "asked, count",
    [
        ({"prompt": [[5] * 200] * 3, "echo": True, "logprobs": 20, "max_tokens": 0}, 12_600),
        ({"prompt": [5] * 200, "echo": True, "logprobs": 4, "n": 11, "max_tokens": 1}, 11_055),
        ({"prompt": [5], "n": 16, "logprobs": 5, "max_tokens": 105}, 10_080),
    ],
)
def test_more_log_probabilities_than_a_call_may_have_are_refused(url, asked, count):
    answer = httpx2.post(f"{url}/v1/completions", json=asked)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "logprobs")
    message = answer.json()["error"]["message"]
    assert message.startswith(f"{count} log-probabilities are asked for, where 10000 are the most")


def test_as_many_log_probabilities_as_allowed_are_answered_whole_and_streamed(url):
    asked = {"prompt": [[5 + i] * 200 for i in range(2)], "echo": True, "logprobs": 20}
    asked |= {"max_tokens": 5, "temperature": 0, "ignore_eos": True}
    whole = httpx2.post(f"{url}/v1/completions", json=asked, timeout=60).json()["choices"]
    streamed = httpx2.post(f"{url}/v1/completions", json=asked | {"stream": True}, timeout=60).text
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    for index, choice in enumerate(whole):
        assert len(choice["logprobs"]["tokens"]) == 205
        mine = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        assert max(len(each["logprobs"]["tokens"]) for each in mine) <= PIECE // 21
        assert "".join(each["text"] for each in mine) == choice["text"]
        for name in ("tokens", "text_offset"):
            said = [each for part in mine for each in part["logprobs"][name]]
            assert said == choice["logprobs"][name]
        assert [each["finish_reason"] for each in mine if each["finish_reason"]] == ["length"]
        assert mine[-1]["finish_reason"]


def test_without_max_tokens_an_answer_ends_at_the_allowed_log_probabilities(url):
    asked = {"messages": [{"role": "user", "content": "x"}], "logit_bias": {"2": -100}, "n": 4}
    asked |= {"logprobs": True, "top_logprobs": 20}
    answer = httpx2.post(f"{url}/v1/chat/completions", json=asked, timeout=60).json()
    for choice in answer["choices"]:
        assert choice["finish_reason"] == "length"
        assert len(choice["logprobs"]["content"]) == 10_000 // (4 * 21)


def test_min_tokens_that_have_more_log_probabilities_than_allowed_are_refused(url):
    asked = {"messages": [{"role": "user", "content": "x"}], "n": 4, "min_tokens": 120}
    asked |= {"logprobs": True, "top_logprobs": 20}
    error = httpx2.post(f"{url}/v1/chat/completions", json=asked).json()["error"]
    assert error["param"] == "logprobs" and error["message"].startswith("10080 log-probabilities")


def test_other_tasks_get_their_turn_while_logprobs_are_written():
    """The event loop gets as many turns as there are pieces: one piece between two turns."""
    asked = {"prompt": [5] * 400, "echo": True, "logprobs": 20, "max_tokens": 0}
    turns = 0

    async def scene(app, service, rows):
        nonlocal turns
        client = Client(app, asked)
        await until(lambda: client.said or client.task.done())
        while not client.task.done():
            turns += 1
            await asyncio.sleep(0)
        assert len(json.loads(client.said)["choices"][0]["logprobs"]["tokens"]) == 400

    asyncio.run(_alone(ServerConfig(), scene))
    assert turns > 4 * 400 * 21 / PIECE


def test_no_more_of_a_long_answer_is_written_for_a_client_that_has_left():
    asked = {"prompt": [5] * 400, "echo": True, "logprobs": 20, "max_tokens": 0}

    async def scene(app, service, rows):
        client = Client(app, asked)
        await until(lambda: client.said)
        client.left.set()
        await client.task
        assert b"top_logprobs" not in client.said, "the third of four columns"

    asyncio.run(_alone(ServerConfig(), scene))


@pytest.mark.parametrize("leaves", [False, True])
def test_a_routes_whole_answer_is_streamed_piece_by_piece_until_its_client_leaves(leaves):
    name, turns = ServerConfig().model.served_name, 0
    config = ServerConfig(routes={"vote": {"ensemble": [name, name], "choose": "best"}})
    asked = {"model": "vote", "prompt": "The json", "max_tokens": 200, "ignore_eos": True}
    asked |= {"seed": 1, "logprobs": 20, "stream": True}

    async def scene(app, service, rows):
        nonlocal turns
        client = Client(app, asked)
        await until(lambda: b"data: {" in client.said)
        if leaves:
            client.left.set()
        while not client.task.done():
            turns += 1
            await asyncio.sleep(0)
        assert client.said.endswith(b"data: [DONE]\n\n") != leaves

    asyncio.run(_alone(config, scene))
    assert leaves or turns > 200 * 21 / PIECE


async def _alone(config, scene):
    local = embedded(config)
    service = service_of(config, local)
    try:
        await scene(app_of(service), service, [])
    finally:
        await asyncio.to_thread(local.live.close)
        service.close()


def test_a_stream_drops_the_logprobs_that_it_has_sent(url):
    with serving(ServerConfig(), embedded) as (served, service):
        asked = {"prompt": "The json", "max_tokens": 200, "logprobs": 20, "stream": True}
        asked |= {"ignore_eos": True}
        kept = []

        class Watcher:
            def entered(self, call):
                pass

            def refused(self, call, problem):
                pass

            def left(self, call, open):
                kept.extend(len(each.answer.logprobs) for each in call.choices.values())

        service.model.admission.watchers.append(Watcher())
        said = httpx2.post(f"{served}/v1/completions", json=asked, timeout=60).text
        assert said.count('"top_logprobs"') >= 100
    assert kept == [0]


def test_a_stream_that_falls_silent_later_is_kept_alive_with_comments(monkeypatch):
    monkeypatch.setattr(sse, "KEEPALIVE", 0.01)
    executor = Permitted()

    async def scene(app, service, rows):
        # With this seed each token has text. A token that is half a character is not streamed.
        asked = {"prompt": [5, 6, 7], "max_tokens": 3, "ignore_eos": True, "seed": 1}
        client = Client(app, asked | {"stream": True})
        for tokens in range(3):
            before = client.said.count(b": waiting")
            await until(lambda before=before: client.said.count(b": waiting") > before + 1)
            executor.permits.release()
            await until(lambda tokens=tokens: client.said.count(b"data: {") > tokens)
        await client.task
        assert client.said.endswith(b"data: [DONE]\n\n")

    inside(ServerConfig(), executor.engine, scene)
