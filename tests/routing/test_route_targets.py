"""Routes over real targets: models and functions in this process, and a server on loopback."""

import asyncio
import math
import socket
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import headway
from headway import LLM, Options
from headway.batching.batcher import Batcher
from headway.core.lane import Lane
from headway.core.load import LaneLoad, Load
from headway.errors import (
    DeadlineError,
    EngineDownError,
    EngineError,
    PromptError,
    RefusedError,
    SettingError,
)
from headway.routing import (
    BatcherTarget,
    Best,
    Cascade,
    Cheapest,
    CircuitSettings,
    Confident,
    Ensemble,
    Fallback,
    LeastLoaded,
    LLMTarget,
    Majority,
    Price,
    RemoteTarget,
    RouteRequest,
    Rule,
    Rules,
    Valid,
)
from tests.server.running_server import fake, serving
from tests.simulated_targets import MS, check, story, target

SHORT = Options(max_tokens=6)
PROMPT = "The json module"


@pytest.fixture(scope="module")
def llms():
    """The embedded model twice: as it is, and in int8."""
    with (
        LLM(dtype="float32", slots=4, context=256) as plain,
        LLM(dtype="float32", quantize="int8", slots=4, context=256) as small,
    ):
        yield small, plain


@pytest.fixture
def models(llms):
    return LLMTarget(llms[0], "small"), LLMTarget(llms[1], "large")


def rows_of(make, use):
    """Use a route in an event loop. Returns the result of `use`, and the rows."""
    rows = []

    async def main():
        async with make(rows.append) as route:
            return await use(route)

    found = asyncio.run(main())
    for row in rows:
        check(row)
    return found, rows


def asks(*requests):
    async def use(route):
        return [await route.ask(each) for each in requests]

    return use


def test_a_cascade_of_models_has_the_ledgers_device_time(llms, models):
    expected = [llm.generate([PROMPT], SHORT)[0].text for llm in llms]
    requests = [RouteRequest(PROMPT, SHORT) for _ in range(2)]
    sure = lambda sink: Cascade(models, Confident(-100.0), rows=sink)  # noqa: E731
    answers, rows = rows_of(sure, asks(*requests))
    assert [each.text for each in answers] == [expected[0]] * 2
    assert all(-100 < each.logprob < 0 and each.tokens == 6 for each in answers)
    for row, answer in zip(rows, answers, strict=True):
        assert story(row) == [("small", "first", "won")]
        assert row.nanoseconds == answer.value.row.nanoseconds > 0 and row.is_measured
    unsure = lambda sink: Cascade(models, Confident(0.0), rows=sink)  # noqa: E731
    (answer,), (row,) = rows_of(unsure, asks(requests[0]))
    assert answer.text == expected[1] and math.isnan(answer.logprob)
    assert row.attempts[1].nanoseconds == answer.value.row.nanoseconds
    assert row.baseline.basis == "measured"
    assert row.saved == -row.attempts[0].cost


def test_an_ensemble_may_hold_models_and_another_ensemble(models):
    small, large = models
    inner = Ensemble([small, large], Best(), name="best")
    make = lambda sink: Ensemble(  # noqa: E731
        [inner, small, large], Majority(lambda answer: 1), name="all", rows=sink
    )
    (answer,), (row,) = rows_of(make, asks(RouteRequest(PROMPT, SHORT)))
    assert answer.target in ("small", "large") and len(row.attempts) == 3
    assert {each.outcome for each in row.attempts} == {"won", "lost"}


def test_the_loser_is_cancelled_in_its_engine_and_pays_what_it_used(llms, models):
    _, large = models

    async def use(route):
        answer = await route.ask(RouteRequest(PROMPT, Options(max_tokens=200, ignore_eos=True)))
        await route.settle()
        return answer

    quick = target("quick", 50, "instead")
    make = lambda sink: Ensemble([large, quick], quorum=1, rows=sink)  # noqa: E731
    answer, (row,) = rows_of(make, use)
    assert answer.text == "instead"
    assert story(row) == [("large", "member", "lost"), ("quick", "member", "won")]
    loser = row.attempts[0]
    assert loser.is_measured and llms[1].load.running == 0
    # All 200 tokens take more device time than the loser used until it was cancelled.
    whole = llms[1].generate([PROMPT], Options(max_tokens=200, ignore_eos=True))[0].row
    assert loser.nanoseconds < whole.nanoseconds


def test_a_deadline_reaches_the_engine(llms, models):
    forever = RouteRequest(PROMPT, Options(max_tokens=230, ignore_eos=True), timeout=0.02)
    rows = []

    async def main():
        async with Fallback([models[1]], rows=rows.append) as route:
            with pytest.raises(DeadlineError):
                await route.ask(forever)

    asyncio.run(main())
    (row,) = rows
    assert story(row) == [("large", "first", "late")] and row.attempts[0].is_measured
    assert llms[1].load.running == 0


def test_an_invalid_request_is_sent_to_the_first_target_only(models):
    rows = []

    async def main():
        async with Fallback(models, rows=rows.append) as route:
            for request in (
                RouteRequest([10**9], SHORT),
                RouteRequest(PROMPT, Options(n=2)),
                RouteRequest(PROMPT, Options(temperature=-1)),
            ):
                with pytest.raises((PromptError, SettingError)):
                    await route.ask(request)
            long = await route.ask(RouteRequest([5] * 20, SHORT))
            with pytest.raises(RefusedError, match="every target refused"):
                await route.ask(RouteRequest([5] * 300, SHORT))
            return long

    assert asyncio.run(main()).tokens
    assert [len(row.attempts) for row in rows] == [1, 1, 1, 1, 2]
    assert rows[4].nanoseconds == 0 and rows[4].attempts[0].outcome == "refused"


def test_a_prompt_may_have_every_form_that_the_model_takes(llms, models):
    ids = [5, 6, 7]

    async def main():
        route = Rules([Rule(models[0], least=1)])
        given = (ids, np.array(ids), iter(ids))
        answers = [await route.ask(RouteRequest(each, SHORT)) for each in given]
        for wrong in (5, {"role": "user"}, np.array(5), [{"content": "x"}, "y"]):
            with pytest.raises(PromptError):
                await route.ask(RouteRequest(wrong, SHORT))
        return [answer.value.tokens for answer in answers]

    (alone,) = llms[0].generate([ids], SHORT)
    assert asyncio.run(main()) == [alone.tokens] * 3


def test_a_model_streams_through_a_fallback_and_a_cascade_cannot_stream(llms, models):
    expected = llms[1].generate([PROMPT], SHORT)[0].text
    refusing = LLMTarget(llms[0], "tiny")

    async def use(route):
        return [piece async for piece in route.stream(RouteRequest(PROMPT, SHORT))]

    pieces, (row,) = rows_of(lambda sink: Fallback([models[1], refusing], rows=sink), use)
    assert "".join(piece.text for piece in pieces) == expected
    assert row.winner == 0 and row.attempts[0].nanoseconds > 0
    cascade = Cascade(models, Confident(-1))
    with pytest.raises(SettingError, match="Cascade judges whole answers, so it cannot stream"):
        asyncio.run(use(cascade))
    with pytest.raises(SettingError, match="these targets cannot stream: cascade"):
        asyncio.run(use(Rules([Rule(models[0], lanes=["x"]), Rule(cascade)])))


def test_a_caller_that_leaves_a_stream_cancels_its_request(llms, models):
    async def use(route):
        stream = route.stream(RouteRequest(PROMPT, Options(max_tokens=200, ignore_eos=True)))
        first = await anext(stream)
        await stream.aclose()
        return first

    first, (row,) = rows_of(lambda sink: LeastLoaded(models, rows=sink), use)
    assert first.tokens and row.error == "the caller left"
    assert row.attempts[0].outcome == "cancelled" and row.attempts[0].is_measured
    assert llms[0].load.running == 0


def test_a_stream_ends_at_the_deadline(models):
    async def use(route):
        request = RouteRequest(PROMPT, Options(max_tokens=230, ignore_eos=True), timeout=0.05)
        with pytest.raises(DeadlineError):
            async for _ in route.stream(request):
                pass

    _, (row,) = rows_of(lambda sink: LeastLoaded(models, rows=sink), use)
    assert row.attempts[0].outcome == "late"


class Told:
    """An account that records its calls."""

    def __init__(self):
        self.begins, self.rows = 0, []

    def begun(self):
        self.begins += 1

    def settled(self, row):
        self.rows.append(row)


def test_agenerate_is_generate_for_asyncio_and_its_account_hears_of_every_end(llms):
    small = llms[0]
    whole, refused, left = Told(), Told(), Told()

    async def main():
        done = await small.agenerate(PROMPT, SHORT, account=whole)
        with pytest.raises(RefusedError):
            await small.agenerate([5] * 300, SHORT, account=refused)
        endless = Options(max_tokens=200, ignore_eos=True)
        task = asyncio.create_task(small.agenerate(PROMPT, endless, account=left))
        while not left.begins:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not left.rows:
            await asyncio.sleep(0.001)
        return done

    done = asyncio.run(main())
    (again,) = small.generate([PROMPT], SHORT)
    assert (done.text, done.tokens) == (again.text, again.tokens)
    assert whole.rows == [done.row] and whole.begins == 1
    assert refused.rows == [None] and refused.begins == 1
    assert [row.finish for row in left.rows] == ["cancelled"]


def test_an_account_hears_of_an_engine_that_is_down():
    with LLM(slots=1, context=64) as llm:
        pass
    told = Told()
    with pytest.raises(EngineDownError):
        asyncio.run(llm.agenerate(PROMPT, SHORT, account=told))
    assert told.rows == [None] and told.begins == 1


def test_an_account_that_raises_does_not_lose_the_answer(llms, caplog):
    class Broken(Told):
        def settled(self, row):
            raise ValueError("not kept")

    async def main():
        async with asyncio.timeout(60):
            return await llms[0].agenerate(PROMPT, SHORT, account=Broken())

    assert asyncio.run(main()).tokens == llms[0].generate([PROMPT], SHORT)[0].tokens
    assert caplog.messages == ["an account could not be settled"]


def test_the_wait_is_from_the_engines_first_token_estimate_if_it_has_one():
    """An eta of 50 ms for 10 prompt tokens of 1 ms each means a wait of 40 ms."""
    known = LaneLoad(Lane(), 2, 10, eta=50 * MS, eta_prompt=10)
    drained = LaneLoad(Lane(), 2, 10, drain=100.0)
    for line, expected in ((known, 40 * MS), (drained, 100 * MS)):
        load = Load(lanes={"default": line}, running=3, prefill=MS)
        assert LLMTarget(SimpleNamespace(load=load), "x").load == (5, expected)


# -- functions


def test_an_attempt_at_a_function_costs_its_share_of_the_call():
    kept = []
    with Batcher(
        lambda items: [len(item) if item != "bad" else ValueError("planted") for item in items],
        lanes={"fast": 1.0, "bulk": None},
        rows=lambda steps, items: kept.extend(items),
    ) as lengths:
        small = BatcherTarget(lengths, "lengths")
        other = headway.batch(lambda items: [-1 for _ in items])
        large = BatcherTarget(other, "other", lane="")
        requests = [RouteRequest("abc", lane="bulk"), RouteRequest("bad"), RouteRequest("xy")]
        positive = Valid(lambda answer: answer.value == 3)
        make = lambda sink: Cascade([small, large], positive, rows=sink)  # noqa: E731
        answers, rows = rows_of(make, asks(*requests))
        assert [each.value for each in answers] == [3, -1, -1]
        assert [len(row.attempts) for row in rows] == [1, 2, 2]
        assert rows[1].attempts[0].error == "planted"
        own = sum(row.attempts[0].nanoseconds for row in rows)
        assert own == sum(row.nanoseconds for row in kept) > 0
        assert [row.lane for row in kept] == ["bulk", "fast", "fast"]
        (end,) = asyncio.run(gathered(Fallback([small]), RouteRequest("x", lane="none")))
        assert isinstance(end, SettingError)
        other.close()


async def gathered(route, *requests):
    async with route:
        return await asyncio.gather(*[route.ask(each) for each in requests], return_exceptions=True)


def test_a_target_asks_the_batcher_that_its_function_has_started_anew():
    function = headway.batch(lambda items: items)
    target = BatcherTarget(function, "function")
    for number in range(2):  # each on a batcher of its own
        assert asyncio.run(gathered(Fallback([target]), RouteRequest(number)))[0].value == number
        function.close()


@pytest.mark.parametrize("make", [Fallback, Cheapest, LeastLoaded, Cascade])
def test_an_item_whose_cost_raises_fails_at_its_target_and_not_at_the_estimate(make):
    with (
        Batcher(lambda items: items, cost=len) as lengths,
        Batcher(lambda items: items) as numbers,
    ):
        targets = [BatcherTarget(lengths, "lengths"), BatcherTarget(numbers, "numbers")]
        more = {"accept": Valid(lambda answer: True)} if make is Cascade else {}
        rows = []
        (end,) = asyncio.run(gathered(make(targets, rows=rows.append, **more), RouteRequest(5)))
        (row,) = rows
        assert "has no len()" in row.attempts[0].error
        assert isinstance(end, TypeError) or end.value == 5


def test_a_running_item_is_left_at_the_deadline_and_paid_when_its_call_ends():
    go = threading.Event()

    def held(items):
        assert go.wait(30)
        return items

    rows = []

    async def main():
        async with Fallback([BatcherTarget(batcher, "held")], rows=rows.append) as route:
            with pytest.raises(DeadlineError):
                await route.ask(RouteRequest("x", timeout=0.05))
            assert rows == [], "the call still runs"
            go.set()
        (row,) = rows
        assert row.attempts[0].is_measured and row.nanoseconds > 0

    with Batcher(held) as batcher:
        asyncio.run(main())


def test_a_functions_own_timeout_is_its_failure():
    def raising(items):
        raise TimeoutError("planted")

    with Batcher(raising) as batcher:
        (end,) = asyncio.run(gathered(Fallback([BatcherTarget(batcher, "f")]), RouteRequest("x")))
        assert isinstance(end, TimeoutError) and not isinstance(end, DeadlineError)


def test_a_generator_function_streams_through_a_route():
    def letters(items):
        for at in range(3):
            yield [item[at] for item in items]

    with Batcher(letters) as batcher:
        only = BatcherTarget(batcher, "letters")

        async def use(route):
            return [piece async for piece in route.stream(RouteRequest("abc"))]

        pieces, (row,) = rows_of(lambda sink: Fallback([only], rows=sink), use)
        assert pieces == ["a", "b", "c"] and row.nanoseconds > 0


def test_a_closed_engine_leads_to_the_next_target(models):
    batcher = Batcher(lambda items: items)
    batcher.close()
    make = lambda sink: Fallback([BatcherTarget(batcher, "closed"), models[0]], rows=sink)  # noqa: E731
    (answer,), (row,) = rows_of(make, asks(RouteRequest(PROMPT, SHORT)))
    assert answer.target == "small" and row.attempts[0].outcome == "failed"


# -- a server


@pytest.fixture(scope="module")
def server():
    with serving(engine=fake) as (url, front):
        yield f"{url}/v1", front


CHAT = [{"role": "user", "content": "What is json?"}]


def test_a_remote_model_answers_texts_ids_and_chats(server):
    async def main():
        rows = []
        async with RemoteTarget(server[0], "headway-tiny", name="far") as far:
            async with Fallback([far], rows=rows.append) as route:
                inputs = [PROMPT, [5, 6, 7], CHAT]
                answers = [
                    await route.ask(RouteRequest(each, Options(max_tokens=4, stop="§")))
                    for each in inputs
                ]
                pieces = [
                    piece
                    async for piece in route.stream(RouteRequest(PROMPT, Options(max_tokens=4)))
                ]
            assert far.load.outstanding == 0 and far.estimate(RouteRequest(PROMPT)).is_known
        return answers, pieces, rows

    answers, pieces, rows = asyncio.run(main())
    assert [each.tokens for each in answers] == [4, 4, 4]
    assert "".join(piece.text for piece in pieces)
    assert answers[2].value["object"] == "chat.completion"
    assert pieces[-1].finish == "length"
    assert [row.is_measured for row in rows] == [False] * 4
    assert all(row.nanoseconds == row.cost > 0 for row in rows)


def test_a_remote_model_gives_the_log_probability_that_a_judge_needs():
    with serving() as (url, _):

        async def main():
            async with (
                RemoteTarget(f"{url}/v1", "headway-tiny") as far,
                Cascade([far, target("never", 1)], Confident(-50.0)) as route,
            ):
                texts = await route.ask(RouteRequest(PROMPT, Options(max_tokens=3)))
                only = Rules([Rule(far)])
                pieces = [
                    piece
                    async for piece in only.stream(RouteRequest(PROMPT, Options(max_tokens=3)))
                ]
                assert "".join([piece.text for piece in pieces]) == texts.text
                chats = await route.ask(RouteRequest(CHAT, Options(max_tokens=3)))
                return texts, chats

        for answer in asyncio.run(main()):
            assert -50 < answer.logprob < 0 and answer.target == "headway-tiny"


def test_remote_errors_are_raised_as_the_matching_types(server):
    url, _ = server

    async def main():
        async with RemoteTarget(url, "headway-tiny") as far, RemoteTarget(url, "nobody") as none:
            wrong = await gathered(
                Fallback([far]),
                RouteRequest(PROMPT, Options(temperature=-1.0)),
                RouteRequest(PROMPT, Options(n=2)),
                RouteRequest([5] * 2_000, Options(max_tokens=4)),
            )
            unknown = await gathered(Fallback([none]), RouteRequest(PROMPT))
        with socket.socket() as silent:  # a socket that holds its port and does not listen
            silent.bind(("127.0.0.1", 0))
            port = silent.getsockname()[1]
            async with RemoteTarget(f"http://127.0.0.1:{port}/v1", "gone") as gone:
                route = Fallback([gone], circuit=CircuitSettings(1))
                down = [
                    *await gathered(route, RouteRequest("x")),
                    *await gathered(route, RouteRequest("x")),
                ]
        return [*wrong, *unknown, *down]

    ends = asyncio.run(main())
    kinds = [PromptError, SettingError, RefusedError, EngineError, EngineDownError, RefusedError]
    assert [type(end) for end in ends] == kinds
    assert "404" in str(ends[3]) and "cannot be reached" in str(ends[4])
    with pytest.raises(SettingError, match="is no URL"):
        RemoteTarget("127.0.0.1:80", "x")


def answering(status, headers=b"", body=b"{}", heard=None):
    """A server that gives every request the same answer. heard: takes the request headers."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                text = b""
                while b"\r\n\r\n" not in text:
                    text += connection.recv(65_536)
                if heard is not None:
                    heard.append(text.lower())
                length = f"content-length: {len(body)}\r\nconnection: close\r\n".encode()
                connection.sendall(
                    b"HTTP/1.1 %d X\r\n" % status + length + headers + b"\r\n" + body
                )

    threading.Thread(target=serve, daemon=True).start()
    return listening


@pytest.mark.parametrize(
    "status, headers, body, kind, after",
    [
        (429, b"retry-after: 3\r\n", b"busy", RefusedError, 3.0),
        (503, b"retry-after-ms: 250\r\nretry-after: 60\r\n", b"{}", RefusedError, 0.25),
        (429, b"retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n", b"{}", RefusedError, None),
        (504, b"", b"{}", DeadlineError, None),
        (500, b"", b'{"error": {"message": "planted"}}', EngineError, None),
        (200, b"", b"no JSON", EngineError, None),
        (200, b"", b"[]", EngineError, None),
        (200, b"", b'{"choices": []}', EngineError, None),
        (422, b"", b'{"error": {"message": "wrong", "code": null}}', PromptError, None),
    ],
)
def test_the_status_and_body_of_an_answer_decide_its_error_type(status, headers, body, kind, after):
    listening = answering(status, headers, body)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"

    async def main():
        async with RemoteTarget(url, "m") as far:
            return await gathered(Fallback([far]), RouteRequest("x"))

    before = time.monotonic_ns()
    (end,) = asyncio.run(main())
    listening.close()
    assert type(end) is kind
    if after is not None:
        assert before + after * 1e9 <= end.retry_at < before + (after + 30) * 1e9


@pytest.mark.parametrize(
    "body, said, why",
    [
        (b'data: {"choices": [{"text": "a"}]}\n\n', "a", "broke off"),
        (b'data:{"choices": [{"text": "a", "finish_reason": "stop"}]}\n\ndata: [DONE]\n', "a", ""),
        (b': a comment\n\ndata: {"error": {"message": "planted"}}\n\n', "", "planted"),
        (
            b': \n\ndata:\n\nevent: x \n\ndata: {"choices": [{"text": "a"}]}\n\ndata: \n\n'
            b': \n\ndata: {"choices": [{"text": "b", "finish_reason": "stop"}]}\n\n',
            *("ab", ""),
        ),
        (
            'data: {"choices": [{"text": "a\u2028\x85b", "finish_reason": "stop"}]}\r\n'.encode(),
            *("a\u2028\x85b", ""),
        ),
        (b'data: {"choices": [{"text": "a", "finish_reason": "stop"}]}', "a", ""),
        (b"data: {]\n\n", "", "no JSON"),
        (b"data: [1]\n\n", "", "OpenAI's form"),
    ],
)
def test_streams_of_other_servers_are_read_or_raise_an_engine_error(body, said, why):
    listening = answering(200, b"", body)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    pieces = []

    async def main():
        async with RemoteTarget(url, "m") as far, Fallback([far]) as route:
            async for piece in route.stream(RouteRequest("x")):
                pieces.append(piece.text)

    if why:
        with pytest.raises(EngineError, match=why):
            asyncio.run(main())
    else:
        asyncio.run(main())
    listening.close()
    assert "".join(pieces) == said


@pytest.mark.parametrize(
    "usage, prompt, answer",
    [
        ('{"prompt_tokens": "3", "completion_tokens": 2}', 3, 2),
        ('{"prompt_tokens": "many", "completion_tokens": null}', 0, 0),
        ('{"prompt_tokens": [3], "completion_tokens": Infinity}', 0, 0),
        ('"3 tokens"', 0, 0),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_unreadable_token_counts_of_other_servers_count_as_0(streamed, usage, prompt, answer):
    body = f'{{"choices": [{{"text": "a", "finish_reason": "stop"}}], "usage": {usage}}}'
    listening = answering(200, b"", (f"data: {body}\n\n" if streamed else body).encode())
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"

    async def use(route):
        if streamed:
            return "".join([piece.text async for piece in route.stream(RouteRequest("x"))])
        return (await route.ask(RouteRequest("x"))).text

    async def main():
        rows, price = [], Price(0, prompt=1.0, answer=100.0)
        async with (
            RemoteTarget(url, "m", price=price) as far,
            Fallback([far], rows=rows.append) as route,
        ):
            said = await use(route)
        return said, rows[0].cost

    said, cost = asyncio.run(main())
    listening.close()
    assert (said, cost) == ("a", 1_000 * (prompt + 100 * answer))


@pytest.mark.parametrize("left, least, most", [(60, 30_000, 60_000), (-5, 1, 1)])
def test_a_remote_server_is_told_the_time_left_until_the_answer_is_due(left, least, most):
    heard = []
    listening = answering(500, heard=heard)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    due = time.monotonic_ns() + left * 1_000_000_000

    async def main():
        async with RemoteTarget(url, "m") as far:
            return await gathered(Fallback([far]), RouteRequest("x", due=due), RouteRequest("x"))

    asyncio.run(main())
    listening.close()
    (said,) = [text for text in heard if b"x-headway-due-ms" in text]
    value = said.split(b"x-headway-due-ms: ")[1].split(b"\r\n")[0]
    assert len(heard) == 2 and least <= float(value) <= most


def test_cancelling_a_remote_attempt_ends_its_request_on_the_server(server):
    url, front = server

    async def main():
        async with RemoteTarget(url, "headway-tiny") as far:
            quick = target("quick", 30)
            async with Ensemble([far, quick], quorum=1) as route:
                answer = await route.ask(
                    RouteRequest(PROMPT, Options(max_tokens=900, ignore_eos=True))
                )
            for _ in range(12_000):
                if not front.model.admission.open:
                    return answer
                await asyncio.sleep(0.005)
            raise AssertionError("the server still answers")

    assert asyncio.run(main()).text in ("quick", "")
