"""The client of `headway bench` against recorded answers of vLLM and of two llama.cpp servers."""

import asyncio

import pytest

from headway.core.lane import Lane
from headway.core.request import Finish, Request
from headway.errors import SettingError
from headway.runs.remote.client_run import ClientRun, Manner
from headway.runs.remote.first_contact import SAMPLE, Contact
from headway.runs.remote.offer import Offer
from headway.runs.remote.target import read_target
from tests.runs.recorded_servers import MODEL, MODELS, recorded

SECOND = 10**9


def wording_of(url, chat=False, model=""):
    return asyncio.run(Contact(read_target(url), {}).wording(model, chat, False))


@pytest.mark.parametrize(
    "kind, exact, context, counts",
    [
        ("vllm", True, 1024, True),
        ("llama.cpp", True, 1024, True),
        ("llama-cpp-python", False, 0, False),
    ],
)
def test_the_first_contact_finds_what_each_server_supports(kind, exact, context, counts):
    with recorded(kind) as (url, _):
        found = wording_of(url)
        assert (found.model, found.exact, found.context) == (MODEL, exact, context)
        assert found.counts is counts
        chat = wording_of(url, chat=True)
        assert not chat.exact and chat.counts is counts
        # 100 words are 200 tokens, even if only an answer that is no stream reports the tokens
        assert chat.words_per_token == 0.5
        if not exact:
            assert found.words_per_token == 0.5


def test_a_model_may_have_an_at_sign_in_its_name(monkeypatch):
    for listed in MODELS["vllm"]["data"]:
        monkeypatch.setitem(listed, "id", "org/model@main")
    with recorded("vllm") as (url, _):
        assert wording_of(url).model == "org/model@main"
        assert wording_of(url, model="org/model@main").context == 1024
        with pytest.raises(SettingError, match="has no model org/model; it has org/model@main"):
            wording_of(url, model="org/model")


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("kind", ["vllm", "llama.cpp", "llama-cpp-python"])
def test_a_request_has_the_same_row_whichever_server_answers(kind, chat):
    with recorded(kind) as (url, heard):
        wording = wording_of(url, chat)
        prompt = tuple(wording.text[: wording.prompt_numbers(SAMPLE)])
        heard.clear()
        manner = Manner(drain=20 * SECOND, window=SECOND)
        offers = [Offer(Request("a-1", prompt, 7, 0, "a"))]
        run = ClientRun(wording, offers, [Lane("a")], manner)
        outcome = run.serve()
    (row,), (client,) = outcome.requests, outcome.client
    assert (row.finish, row.prompt, row.generated) == (Finish.LENGTH, SAMPLE, 7)
    assert row.cached == (3 if kind == "llama.cpp" else 0)
    assert len(client.gaps) == 6 and client.status == 200 and not client.error
    assert row.arrived < row.first_token <= row.last_token <= row.finished
    (body,) = heard
    assert body["stream"] and ("stream_options" in body) is wording.counts
