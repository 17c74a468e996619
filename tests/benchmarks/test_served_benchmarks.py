"""benchmarks.overload and benchmarks.vllm count as good what is inside its lane's budget."""

import asyncio

import pytest

from benchmarks.overload.__main__ import Answer, Asked, Round, Watch, shares
from benchmarks.overload.client import NOTHING, told
from benchmarks.server_overhead.served import Served
from benchmarks.vllm.hang_up import LIMITS, OVER, HangUp
from benchmarks.vllm.sweep import SHARES, STEPS, Setting, sweep

ANSWERED = (
    b"HTTP/1.1 200 OK\r\nx-headway-lane: standard\r\ncontent-length: 9",
    b'\r\n\r\n{"metrics":{"generation_time_ms":70.5,"mean_itl_ms":3.5}}',
)
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nretry-after-ms: 1250"


def test_told_reads_lane_and_times_of_an_answer_and_the_retry_time_of_a_refusal():
    assert told(*ANSWERED) == (200, 0.0, "standard", 0.0705, 0.0035)
    assert told(REFUSED, b"") == (429, 1.25, "", 0.0, 0.0)
    assert NOTHING[0] == 0


def test_late_answers_count_as_answered_and_not_as_good():
    def answer(ended, decode=0.5, tpot=0.02, status=200):
        return Answer(0.0, 0.0, ended, status, 0.0, 0, "standard" if status else "", decode, tpot)

    answers = [
        answer(2.4),  # its first token came after 1.9 s of the budget's 2 s
        answer(2.6),
        answer(9.0, decode=8.0, tpot=0.3),
        answer(0.1, status=0),
    ]
    turn = Round([0.1], Asked(answers, 0.0), [0.1], Watch(Served(0, "", 0)))
    answered, good = shares([turn])
    assert (answered.name, good.name, good.bound) == ("answered_share", "goodput_share", "")
    assert [answered.samples[0], good.samples[0]] == pytest.approx([3, 1])


def test_a_sweep_tries_each_hang_up_share_with_the_best_of_either_order():
    good = {Setting(512): 50, Setting(256, "chat"): 60, Setting(256, "code"): 70}
    good |= {Setting(256, "code", 0.5): 80, Setting(512, "", 0.9): 90}
    tried = []

    def inside(setting):
        tried.append(setting)
        return good.get(setting, 10)

    assert sweep(STEPS, inside) == Setting(512, "", 0.9)
    assert len(tried) == len(set(tried)) == 13
    assert {each for each in tried if each.share} == {
        Setting(*order, share) for order in ((512, ""), (256, "code")) for share in SHARES
    }
    budgets = {"chat": {"ttft": 2_000.0, "tpot": 9.0}, "code": {"tpot": 9.0}}
    assert Setting(256, "chat", 0.7).limits(budgets) == {"chat": 1.4}
    assert Setting(256).limits(budgets) == {}


def asked(monkeypatch, limit, app, lane=b"chat"):
    """What the server's app heard after the request, and what the real caller was sent."""
    monkeypatch.setenv(LIMITS, f'{{"chat": {limit}}}')
    heard, sent = [], []

    async def serve():
        silent, requests = asyncio.Event(), [{"type": "http.request", "body": b"{}"}]

        async def receive():
            if not requests:
                await silent.wait()
                return {"type": "http.disconnect", "own": True}
            return requests.pop()

        async def send(message):
            sent.append(message)

        async def called(scope, receive, send):
            assert (await receive())["body"] == b"{}"
            await app(receive, send, heard, silent)

        scope = {"type": "http", "headers": [(b"x-headway-lane", lane)]}
        await HangUp(called)(scope, receive, send)

    asyncio.run(serve())
    return heard, sent


START = {"type": "http.response.start", "status": 200, "headers": []}
TOKEN = {"type": "http.response.body", "body": b"data: {}", "more_body": True}


@pytest.mark.parametrize("begins", [False, True])
def test_a_caller_without_a_token_in_time_has_hung_up(monkeypatch, begins):
    async def app(receive, send, heard, silent):
        if begins:
            await send(START)
        heard += [await receive(), await receive()]
        await send(TOKEN)  # to nobody

    heard, sent = asked(monkeypatch, 0.01, app)
    assert heard == [{"type": "http.disconnect"}] * 2
    assert sent[0]["status"] == (200 if begins else 503)
    assert [each["body"] for each in sent[1:]] == [b"" if begins else OVER]


def test_a_caller_that_has_a_token_stays_until_it_leaves_by_itself(monkeypatch):
    async def app(receive, send, heard, silent):
        await send(START)
        await send(TOKEN)
        silent.set()
        heard.append(await receive())

    heard, sent = asked(monkeypatch, 0.0, app)
    assert heard[0]["own"] and sent == [START, TOKEN]
    assert asked(monkeypatch, 0.0, app, lane=b"other")[0][0]["own"]
