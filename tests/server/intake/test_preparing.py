"""A call before it enters its lane: work off the event loop, cancels, deadlines, places."""

import asyncio
import gc
import json
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import httpx2
import pytest

from headway.core.grammar import Grammar
from headway.core.lane import Budget, Lane
from headway.core.load import LaneLoad, Load
from headway.core.request import NEVER
from headway.models import EMBEDDED
from headway.server.answering.arrival import Arrival
from headway.server.answering.routed import Routed
from headway.server.config.config import ServerConfig
from headway.server.config.sections.limits import LimitSettings
from headway.server.config.tenant import Tenant
from headway.server.http.disconnect import Client as Waiting
from headway.server.intake import supersede as latests
from headway.server.intake import tokenizing as tokenizing
from headway.server.intake.admission import Admission
from headway.server.intake.keys import KeyRing
from headway.server.intake.limits.concurrency import Permit
from headway.server.intake.prepare import ServedModel, tokenize
from headway.server.intake.supersede import Supersession
from headway.server.intake.tokenizing import (
    DEFAULT_BYTES,
    FITTING,
    AsyncTokenizer,
    most_bytes,
)
from headway.server.protocol.deadlines import Deadlines
from headway.server.protocol.fields import CompletionBody
from headway.server.protocol.problem import Problem
from headway.server.protocol.reading import read
from headway.server.protocol.request import completion_request
from tests.server.asgi_client import LONG, Client, inside, paced, until
from tests.server.running_server import fake, requests_sent, serving, tokenizer

TOKENIZED = {"prompt": "word " * 900, "max_tokens": 3, "ignore_eos": True}  # in a thread
EDITOR = [(b"x-headway-supersede", b"editor")]


@pytest.fixture
def held():
    """An event that blocks the tokenizer's thread until it is set."""
    event = threading.Event()
    yield event
    event.set()


def hold(service, held):
    service.model.tokenizer._worker.submit(held.wait, 30)


def in_line(service):
    return service.model.tokenizer._worker._work_queue.qsize()


def code(client):
    return json.loads(client.said)["error"]["code"]


def counted(service):
    """The standard lane's counts in the metrics, without zeros."""
    told = service.metrics.models[0]._requests
    return {
        (what, word): count
        for what, counter in (
            ("ended", told._outcomes),
            ("refused", told._refusals),
            ("left", told._left),
        )
        for (lane, word), count in counter.items()
        if lane == "standard" and count
    }


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_whose_client_leaves_is_neither_tokenized_nor_submitted(
    held, monkeypatch, stream
):
    encoded = []
    monkeypatch.setattr(tokenizing, "_encode", lambda words, prompt: encoded.append(prompt))

    async def scene(app, service, rows):
        hold(service, held)
        goes = Client(app, TOKENIZED | {"stream": stream})
        await until(lambda: in_line(service))
        goes.left.set()
        await goes.task
        assert goes.status == 499
        held.set()
        await asyncio.to_thread(service.model.tokenizer._worker.submit(int).result, 30)
        assert not encoded and not rows
        assert counted(service) == {("ended", "cancelled"): 1, ("left", "client_gone"): 1}
        assert not service.model.admission.preparing["standard"] and not service.held.size

    inside(ServerConfig(), paced, scene)


@pytest.mark.parametrize("header", [b"x-headway-timeout-ms", b"x-slo-ttft-ms"])
def test_a_deadline_applies_while_waiting_for_the_tokenizer(held, header):
    async def scene(app, service, rows):
        hold(service, held)
        late = Client(app, TOKENIZED, [(header, b"20")])
        await asyncio.wait_for(late.task, 30)
        assert (late.status, late.headers["x-should-retry"]) == (408, "false")
        assert code(late) == "deadline_exceeded" and not rows
        assert counted(service) == {("ended", "expired"): 1, ("refused", "deadline_exceeded"): 1}

    inside(ServerConfig(), paced, scene)


def test_a_deadline_applies_while_a_grammar_is_checked():
    async def scene(app, service, rows):
        service.model.tokenizer.check_grammar = lambda *about: (
            asyncio.get_running_loop().create_future()
        )
        shaped = LONG | {"structured_outputs": {"regex": "a+"}}
        del shaped["ignore_eos"]
        late = Client(app, shaped, [(b"x-headway-timeout-ms", b"20")])
        await asyncio.wait_for(late.task, 30)
        assert late.status == 408
        assert b"not ended within 0.02 s of its arrival" in late.said

    inside(ServerConfig(), paced, scene)


def test_a_request_holds_a_place_in_the_lane_while_it_is_tokenized(held):
    async def scene(app, service, rows):
        hold(service, held)
        both = [Client(app, TOKENIZED) for _ in range(2)]
        await until(lambda: service.model.admission.preparing["standard"] == 2)
        third = Client(app, LONG)
        await third.task
        assert (third.status, code(third)) == (429, "lane_full")
        held.set()
        await asyncio.gather(*[each.task for each in both])
        assert [each.status for each in both] == [200, 200]
        again = Client(app, LONG | {"max_tokens": 2})
        await again.task
        assert again.status == 200, "their places are free"

    inside(ServerConfig(lanes={"standard": {"max_waiting": 2}}), paced, scene)


def test_a_call_of_more_requests_than_may_ever_wait_is_refused_untokenized(held):
    async def scene(app, service, rows):
        hold(service, held)
        many = Client(app, TOKENIZED | {"n": 3})
        await asyncio.wait_for(many.task, 30)
        assert many.status == 400 and b"3 requests come together" in many.said
        assert not service.model.admission.preparing["standard"] and not in_line(service)

    inside(ServerConfig(lanes={"standard": {"max_waiting": 2}}), paced, scene)


def test_a_call_in_preparation_is_counted_and_can_be_cancelled_by_its_id(held):
    async def scene(app, service, rows):
        hold(service, held)
        goes = Client(app, TOKENIZED, [(b"x-request-id", b"mine")])
        await until(lambda: in_line(service))
        tenant = service.authenticate({}).tenant.name
        assert (
            service.model.admission.cancel("another", "mine")
            == service.model.admission.cancel(tenant, "other")
            == 0
        )
        assert service.model.admission.preparing == {"standard": 1}
        assert service.model.admission.cancel(tenant, "mine") == 1
        await goes.task
        assert (goes.status, code(goes)) == (409, "cancelled") and not rows
        assert service.model.admission.cancel(tenant, "mine") == 0

    inside(ServerConfig(), paced, scene)


@pytest.mark.parametrize("chat", [True, False])
def test_a_text_too_long_for_the_context_is_refused_untokenized(chat, monkeypatch):
    encoded = []
    monkeypatch.setattr(tokenizing, "_encode", lambda words, prompt: encoded.append(prompt))

    async def scene(app, service, rows):
        most = service.model.engine.load.capacity * service.model.tokenizer.inner.longest
        text, field = "a" * (most + 1), "messages" if chat else "prompt"
        body = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
        path = "/v1/chat/completions" if chat else "/v1/completions"
        long = Client(app, body, path=path)
        await asyncio.wait_for(long.task, 30)
        assert (long.status, code(long)) == (400, "context_length_exceeded")
        assert json.loads(long.said)["error"]["param"] == field and not encoded

    inside(ServerConfig(), paced, scene)


TEXT_BYTES = 120_000
LONG_TEXTS = [
    ("/tokenize", {"prompt": "\ue000" * 40_000 + "a"}, "prompt"),
    ("/tokenize", {"messages": [{"role": "user", "content": "a" * 60_001}] * 2}, "messages"),
    ("/detokenize", {"tokens": [5] * 30_001}, "tokens"),
    ("/v1/completions", {"prompt": "a" * 120_001, "truncate_prompt_tokens": 5}, "prompt"),
]


@pytest.mark.parametrize(("path", "asked", "field"), LONG_TEXTS)
def test_text_bytes_bounds_texts_that_no_context_bounds(path, asked, field, monkeypatch):
    encoded = []
    monkeypatch.setattr(tokenizing, "_encode", lambda words, prompt: encoded.append(prompt))

    async def scene(app, service, rows):
        assert service.model.text_bytes == TEXT_BYTES
        client = Client(app, asked, path=path)
        await asyncio.wait_for(client.task, 30)
        assert (client.status, code(client)) == (400, "text_too_long")
        told = json.loads(client.said)["error"]
        assert told["param"] == field and not encoded
        assert str(TEXT_BYTES) in told["message"] and "limits.text_bytes" in told["message"]
        assert not service.held.size

    inside(ServerConfig(server={"limits": {"text_bytes": TEXT_BYTES}}), paced, scene)


def test_text_up_to_the_bound_is_tokenized():
    async def scene(app, service, rows):
        text = "\ue000" * (TEXT_BYTES // 3)
        client = Client(app, {"prompt": text}, path="/tokenize")
        await asyncio.wait_for(client.task, 30)
        ids = json.loads(client.said)["tokens"]
        assert client.status == 200 and len(ids) == TEXT_BYTES
        client = Client(app, {"tokens": ids[: TEXT_BYTES // 4]}, path="/detokenize")
        await asyncio.wait_for(client.task, 30)
        assert client.status == 200

    inside(ServerConfig(server={"limits": {"text_bytes": TEXT_BYTES}}), paced, scene)


def test_without_a_configured_bound_a_large_context_allows_longer_texts():
    assert most_bytes(0, 1_000) == DEFAULT_BYTES
    assert most_bytes(0, DEFAULT_BYTES) == FITTING * DEFAULT_BYTES
    assert most_bytes(100, DEFAULT_BYTES) == 100, "a configured bound is obeyed"


def test_the_bytes_being_tokenized_at_once_are_bounded(held, monkeypatch):
    monkeypatch.setattr(tokenizing, "MOST_HELD", 10_000)

    async def scene(app, service, rows):
        hold(service, held)
        first = Client(app, TOKENIZED)
        await until(lambda: in_line(service))
        for path, body in (("/v1/completions", {"prompt": "word " * 2_000}),
                           ("/tokenize", {"prompt": "word " * 2_000})):  # fmt: skip
            more = Client(app, body, path=path)
            await asyncio.wait_for(more.task, 30)
            assert (more.status, code(more)) == (429, "too_much_text")
            assert more.headers["retry-after"]
        held.set()
        await first.task
        assert first.status == 200
        alone = Client(app, {"prompt": "word " * 4_000}, path="/tokenize")
        await asyncio.wait_for(alone.task, 30)
        assert alone.status == 200, "a single text is never too much"

    inside(ServerConfig(), paced, scene)


class Panic(BaseException):
    """A BaseException, as a library in another language may raise."""


FAULTS = [StopIteration(), Panic("a fault"), MemoryError()]


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
@pytest.mark.parametrize("path", ["/tokenize", "/v1/completions"])
def test_any_tokenizer_failure_is_answered_with_500_and_holds_nothing(monkeypatch, path, fault):
    def fails(words, prompt):
        raise fault

    monkeypatch.setattr(tokenizing, "_encode", fails)

    async def scene(app, service, rows):
        body = TOKENIZED if path != "/tokenize" else {"prompt": TOKENIZED["prompt"]}
        asked = Client(app, body, path=path)
        await asyncio.wait([asked.task], timeout=30)
        assert asked.task.done() and asked.task.exception(), "the app hands it on, for the log"
        assert asked.status == 500
        assert not service.held.size and not service.model.admission.preparing["standard"]
        assert not service.model.admission._clients

    inside(ServerConfig(), paced, scene)


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_any_failure_in_the_tokenizers_thread_reaches_its_caller(monkeypatch, fault):
    def fails(*given):
        raise fault

    monkeypatch.setattr(tokenizing, "grammar_problem", fails)
    made = AsyncTokenizer(SimpleNamespace(decode=fails, spellings=fails), EMBEDDED)

    async def scene():
        for waits in (
            made.check_grammar(Grammar("regex", "a"), 10**9),
            made.decode((5,) * 2_000, skip_special=True),
            made.spellings(["word" * 1_000]),
        ):
            with pytest.raises((RuntimeError, MemoryError)):
                await asyncio.wait_for(waits, 30)

    asyncio.run(scene())
    made.close()


def test_grammars_are_checked_although_the_loops_own_threads_are_taken(monkeypatch):
    """Such as by names of hosts that are looked up in vain."""
    monkeypatch.setattr(tokenizing, "grammar_problem", lambda *given: "wrong")
    made, over = AsyncTokenizer(None, EMBEDDED), threading.Event()

    async def scene():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        taken = loop.run_in_executor(None, over.wait, 60)
        try:
            check = made.check_grammar(Grammar("regex", "a"), 10**9)
            assert await asyncio.wait_for(check, 30) == "wrong" and not taken.done()
        finally:
            over.set()
            await taken

    asyncio.run(scene())
    made.close()


def test_a_chat_with_every_private_use_character_is_answered():
    every = "".join(map(chr, range(0xE000, 0xF900)))

    async def scene(app, service, rows):
        body = {"messages": [{"role": "user", "content": f"<|pad|>{every}"}]}
        chat = Client(app, body, path="/tokenize")
        await asyncio.wait_for(chat.task, 30)
        assert chat.status == 200 and json.loads(chat.said)["count"] > len(every)
        assert not service.held.size

    inside(ServerConfig(), paced, scene)


def test_a_given_seed_is_used_for_each_prompt_and_without_one_seeds_differ():
    with serving(engine=fake) as (url, front):
        sent = requests_sent(front.model.engine)
        asked = {"prompt": ["one", "two"], "max_tokens": 2, "temperature": 1.0, "seed": 7}
        for _ in range(2):
            assert httpx2.post(f"{url}/v1/completions", json=asked).status_code == 200
        assert len(sent) == 4 and len({each.sampling.seed for each in sent}) == 1
        sent.clear()
        del asked["seed"]
        assert httpx2.post(f"{url}/v1/completions", json=asked).status_code == 200
        assert len({each.sampling.seed for each in sent}) == 2


def test_truncate_prompt_tokens_cuts_a_text_longer_than_the_context():
    with serving(engine=fake) as (url, _):
        asked = {"prompt": "one two " * 9_000, "max_tokens": 2, "truncate_prompt_tokens": 5}
        answer = httpx2.post(f"{url}/v1/completions", json=asked)
        assert answer.json()["usage"]["prompt_tokens"] == 5


def test_a_client_that_left_is_forgotten_at_once():
    """Its object is freed without a run of the garbage collector."""

    async def scene():
        async def receive():
            return await asyncio.get_running_loop().create_future()

        config = ServerConfig()
        ring = KeyRing(config.keys, config.lanes, config.default_lane)
        anybody = ring.authenticate("")
        assert ring.begin(anybody)
        client = Waiting(receive, Permit(ring, anybody))
        seen = weakref.ref(client)
        await asyncio.sleep(0)
        client.close()
        client.close()
        del client
        for _ in range(3):
            await asyncio.sleep(0)
        return seen()

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(scene()) is None
    finally:
        gc.enable()


class Text(str):
    """A text whose end can be seen."""


def test_a_text_that_is_given_up_before_its_turn_is_freed_at_once(held):
    async def scene():
        made = AsyncTokenizer(tokenizer(), EMBEDDED)
        busy = made._worker.submit(held.wait, 30)
        text = Text("word " * 1_000)
        seen = weakref.ref(text)
        asked = asyncio.create_task(made.encode(text))
        del text
        await asyncio.sleep(0)
        assert seen() and not asked.done()
        asked.cancel()
        await asyncio.wait([asked])
        del asked  # it keeps a traceback
        gc.collect()
        assert seen() is None and not busy.done()
        made.close()

    asyncio.run(scene())


def test_a_request_that_supersedes_nothing_is_refused_by_a_full_lane(held):
    async def scene(app, service, rows):
        hold(service, held)
        first = Client(app, TOKENIZED)
        await until(lambda: service.model.admission.preparing["standard"])
        refused = Client(app, TOKENIZED, EDITOR)
        await refused.task
        assert (refused.status, code(refused)) == (429, "lane_full")
        held.set()
        await first.task
        assert first.status == 200

    inside(ServerConfig(lanes={"standard": {"max_waiting": 1}}), paced, scene)


def test_a_later_request_supersedes_one_that_is_not_yet_tokenized(held):
    async def scene(app, service, rows):
        hold(service, held)
        first = Client(app, TOKENIZED, EDITOR)
        await until(lambda: in_line(service))
        last = Client(app, LONG | {"max_tokens": 2}, EDITOR)
        await asyncio.gather(last.task, first.task)
        assert (last.status, first.status, code(first)) == (200, 409, "superseded")
        assert len(rows) == 1 and counted(service)["left", "superseded"] == 1
        other = Client(app, LONG | {"max_tokens": 2}, EDITOR)
        await other.task
        assert other.status == 200

    inside(ServerConfig(), paced, scene)


# -- admission


def routed(key="editor", lane="chat", tenant="t", at=1):
    headers = {"x-headway-supersede": key}
    arrival = Arrival(Tenant(tenant, "k", frozenset({lane}), lane, ""), headers, at)
    asked = SimpleNamespace(prompts=("x",), options=SimpleNamespace(n=1))
    return Routed("", asked, arrival, "", lane, Deadlines(Budget(), NEVER, NEVER))


class Heard:
    """A call, or a client that prepares one."""

    def __init__(self, routed):
        self.routed, self.arrived, self.problem = routed, routed.arrival.at, None
        self.unheard = [f"of {self.arrived}"]

    def end(self, problem):
        self.problem = problem


def test_a_request_that_supersedes_another_needs_no_free_place():
    lanes = {
        name: LaneLoad(Lane(name, max_waiting=1), 1, 10, drain=20.0) for name in ("chat", "bulk")
    }
    admission = Admission(SimpleNamespace(load=Load(lanes=lanes)), None, lambda: 0, Supersession())

    def let_in(call):
        with ExitStack() as stack:
            stack.enter_context(admission.reserving(call, Heard(call)))
            return True

    with pytest.raises(Problem, match="1 requests wait in 'chat' already"):
        let_in(routed(at=5))
    admission._supersession.enter(Heard(routed()))
    assert let_in(routed(at=5))
    for another in (
        routed("other", at=5),
        routed(tenant="u", at=5),
        routed(lane="bulk", at=5),
        routed("", at=5),
    ):
        with pytest.raises(Problem, match="already"):
            let_in(another)


def test_a_later_arrival_ends_the_preparation_of_the_earlier_one():
    latest, early, late = Supersession(), Heard(routed(at=3)), Heard(routed(at=4))
    latest.begin_preparing(routed(at=3), early)
    latest.begin_preparing(routed(at=4), late)
    assert early.problem.code == "superseded" and not late.problem
    latest.end_preparing(routed(), early)
    latest.end_superseded(late)
    latest.enter(late)
    latest.end_preparing(routed(), late)
    latest.leave(late)
    for stale in (
        lambda: latest.end_superseded(early),
        lambda: latest.begin_preparing(routed(at=3), early),
    ):
        with pytest.raises(Problem) as caught:
            stale()
        assert (caught.value.status, caught.value.final) == (409, True)
    latest.begin_preparing(routed(tenant="u", at=3), Heard(routed(tenant="u")))
    assert not late.problem


def test_a_superseded_request_leaves_the_lane_when_the_later_one_enters():
    latest, early, late = Supersession(), Heard(routed(at=3)), Heard(routed(at=4))
    latest.enter(early)
    latest.begin_preparing(routed(at=4), late)
    assert not early.problem, "the later one may still be refused for its contents"
    assert latest.end_superseded(late) == ["of 3"], "it leaves its place in line"
    assert early.problem.code == "superseded"


def test_supersede_keys_are_forgotten_least_recently_used_first(monkeypatch):
    monkeypatch.setattr(latests, "MOST", 2)
    latest = Supersession()
    for at, key in enumerate(["a", "b", "a", "c"], 10):
        latest.begin_preparing(routed(key, at=at), call := Heard(routed(key)))
        latest.end_preparing(routed(key), call)
    with pytest.raises(Problem):
        latest.begin_preparing(routed("a", at=1), Heard(routed("a")))
    latest.begin_preparing(routed("b", at=1), Heard(routed("b")))
    assert len(latest._arrived) == 2 and len(latest._preparing) == 1


# -- off the event loop


class Where:
    """A tokenizer that records which threads used which method."""

    def __init__(self):
        self.used = set()

    def __getattr__(self, name):
        found = getattr(tokenizer(), name)

        def use(*given):
            self.used.add((name, threading.current_thread()))
            return found(*given) if given else found

        return use if callable(found) else use()


TURNS = ({"role": "user", "content": ""},) * 50
BESIDE = {
    "a long text": lambda texts: texts.encode("word " * 900),
    "texts that are long together": lambda texts: texts.encode(*["word " * 90] * 10),
    "a chat of many turns": lambda texts: texts.encode(TURNS * 2),
    "many ids": lambda texts: texts.encode((5,) * 70_000),
    "an echo": lambda texts: texts.decode((5,) * 1_000, skip_special=True),
    "echoes": lambda texts: texts.decode(*[(5,) * 100] * 10, skip_special=False),
    "bad words": lambda texts: texts.spellings(["word" * 170] * 2),
}
NEAR = {
    "a text": lambda texts: texts.encode("word " * 700),
    "a chat": lambda texts: texts.encode(TURNS),
    "ids": lambda texts: texts.encode((5,) * 60_000),
    "an echo": lambda texts: texts.decode((5,) * 999, skip_special=True),
    "bad words": lambda texts: texts.spellings(["word" * 250]),
}


@pytest.mark.parametrize(
    "beside, work",
    [pytest.param(True, work, id=f"beside: {name}") for name, work in BESIDE.items()]
    + [pytest.param(False, work, id=f"at once: {name}") for name, work in NEAR.items()],
)
def test_only_long_texts_are_processed_in_the_tokenizers_thread(beside, work, monkeypatch):
    made = AsyncTokenizer(where := Where(), EMBEDDED)
    found = asyncio.run(work(made))
    threads = {thread for _, thread in where.used}
    assert threads == (set(made._worker._threads) if beside else {threading.main_thread()})
    for name in ("LONG", "LONG_IDS"):
        monkeypatch.setattr(tokenizing, name, 10**9 if beside else 0)
    assert asyncio.run(work(made)) == found, "the same in the other thread"
    made.close()


def test_all_long_texts_of_a_call_are_processed_in_the_tokenizers_thread():
    body = {
        "prompt": [[5, 6, 7] * 400, [8, 9] * 600],
        "echo": True,
        "truncate_prompt_tokens": 1_000,
        "bad_words": ["x" * 1_000, "y" * 1_000],
    }
    bounds = LimitSettings()
    asked = completion_request(read(CompletionBody, json.dumps(body).encode()), bounds)
    made = AsyncTokenizer(where := Where(), EMBEDDED)
    said = asyncio.run(tokenize(asked, ServedModel(made, frozenset(), 2_048, 100, 32_768)))
    words, here = tokenizer(), threading.main_thread()
    assert {name for name, thread in where.used if thread is here} == {"vocab"}
    assert [len(each) for each in said.prompts] == [1_000, 1_000] and said.max_tokens == (16, 16)
    assert said.echoes == tuple([words.decode(each) for each in said.prompts])
    assert said.bad_words == words.spellings(body["bad_words"])
    made.close()
