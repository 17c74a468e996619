"""The openai package, validating strictly, against a running server with the embedded model."""

import json
import threading
from shutil import copytree, ignore_patterns

import httpx2
import openai
import pytest

from headway.llm.llm import LLM
from headway.llm.options import Options
from headway.models import EMBEDDED
from headway.server.config.config import ServerConfig
from headway.server.intake.tokenizing import AsyncTokenizer
from headway.text.tokenizer import Tokenizer
from tests.server.running_server import embedded, serving

ASK = [{"role": "user", "content": "The json module"}]


@pytest.fixture(scope="module")
def served():
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(
        base_url=f"{served[0]}/v1", api_key="none", _strict_response_validation=True, max_retries=0
    ) as made:
        yield made


@pytest.fixture(scope="module")
def offline():
    """The same model without a server."""
    with LLM(dtype="float32") as llm:
        yield llm


def test_models_are_listed_and_an_unknown_one_is_not_found(client):
    names = [model.id for model in client.models.list()]
    assert names[0] == "headway-tiny" and "headway-tiny@offline" in names
    assert client.models.retrieve("headway-tiny").owned_by == "headway"
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
        client.models.retrieve("other")


def test_a_chats_answer_equals_that_of_the_offline_model(client, offline):
    said = client.chat.completions.create(
        model="headway-tiny", messages=ASK, max_completion_tokens=24, temperature=0
    )
    alone = offline.chat(ASK, Options(max_tokens=24))
    assert said.choices[0].message.content == alone.text
    assert said.choices[0].finish_reason == alone.finish
    assert said.usage.prompt_tokens == len(alone.prompt)
    assert said.usage.completion_tokens == len(alone.tokens)
    assert said.metrics["time_to_first_token_ms"] > 0


def test_a_streams_pieces_add_up_to_the_whole_answer(client):
    asked = {"model": "headway-tiny", "messages": ASK, "max_tokens": 24, "n": 2, "seed": 3}
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    for choice in whole.choices:
        mine = [c for chunk in chunks for c in chunk.choices if c.index == choice.index]
        assert (mine[0].delta.role, mine[0].delta.content) == ("assistant", "")
        assert all(each.delta.role is None for each in mine[1:])
        assert "".join(each.delta.content or "" for each in mine) == choice.message.content
        ends = [each.finish_reason for each in mine if each.finish_reason]
        assert ends == [choice.finish_reason]
        assert mine[-1].finish_reason and mine[-1].delta.content is None
    *before, last = chunks
    assert last.choices == [] and all(chunk.usage is None for chunk in before)
    tokens = whole.usage.prompt_tokens, whole.usage.completion_tokens
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == tokens


def test_continuous_usage_stats_puts_the_usage_so_far_in_every_chunk(client):
    """The client does not validate strictly: its type of a completion's chunk allows no null
    finish_reason, which OpenAI's own server also sends.
    """
    with openai.OpenAI(base_url=client.base_url, api_key="none") as lenient:
        chunks = lenient.completions.create(
            model="headway-tiny",
            prompt="The json",
            max_tokens=5,
            stream=True,
            stream_options={"continuous_usage_stats": True},
        )
        counts = [chunk.usage.completion_tokens for chunk in chunks]
        chunks = lenient.chat.completions.create(
            model="headway-tiny",
            messages=ASK,
            max_tokens=3,
            stream=True,
            stream_options={"continuous_usage_stats": True},
        )
        assert all(chunk.usage.prompt_tokens for chunk in chunks), "its first chunk is its role"
    assert counts == sorted(counts) and counts[-1] == 5


def test_choices_of_several_prompts_are_in_the_prompts_order(client, offline):
    prompts = ["The json module", "A list is"]
    said = client.completions.create(
        model="headway-tiny", prompt=prompts, max_tokens=8, n=2, temperature=0, stop="."
    )
    alone = offline.generate(prompts, Options(max_tokens=8, n=2, stop=("."), temperature=0))
    assert [(c.index, c.text, c.finish_reason) for c in said.choices] == [
        (index, each.text, each.finish) for index, each in enumerate(alone)
    ]


def test_a_repeated_prompt_comes_from_the_cache(client):
    asked = {"model": "headway-tiny", "prompt": "a list of many words " * 20, "max_tokens": 1}
    client.completions.create(**asked)
    used = client.completions.create(**asked).usage
    assert 0 < used.prompt_tokens_details.cached_tokens < used.prompt_tokens


def test_the_usage_so_far_does_not_say_that_nothing_was_cached(client):
    asked = {"model": "headway-tiny", "prompt": "some words that come twice " * 20}
    options = {"include_usage": True, "continuous_usage_stats": True}
    client.completions.create(**asked, max_tokens=1)
    with openai.OpenAI(base_url=client.base_url, api_key="none") as lenient:
        chunks = lenient.completions.create(**asked, stream=True, stream_options=options)
        *early, last = [chunk.usage for chunk in chunks if chunk.usage]
    assert last.prompt_tokens_details.cached_tokens > 0
    told = [each.prompt_tokens_details for each in early if each.prompt_tokens_details]
    assert len(told) < len(early) and all(each.cached_tokens > 0 for each in told)


def test_a_chats_logprobs_spell_its_text_and_name_the_likeliest_token(client):
    said = client.chat.completions.create(
        model="headway-tiny",
        messages=ASK,
        max_tokens=8,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
    )
    scores = said.choices[0].logprobs.content
    assert "".join(each.token for each in scores) == said.choices[0].message.content
    assert all(each.token == each.top_logprobs[0].token for each in scores), "it is greedy"
    assert all(bytes(each.bytes).decode() == each.token for each in scores)


def test_streamed_logprobs_equal_those_of_a_whole_answer(served):
    """Asked without the client, whose types allow no null among the log-probabilities."""
    url = f"{served[0]}/v1/completions"
    asked = {"prompt": "The json", "max_tokens": 8, "logprobs": 1, "temperature": 0, "echo": True}
    whole = httpx2.post(url, json=asked).json()["choices"][0]
    streamed = httpx2.post(url, json=asked | {"stream": True}).text
    lines = [line[6:] for line in streamed.splitlines() if line.startswith("data: {")]
    parts = [json.loads(line)["choices"][0] for line in lines]
    assert "".join(part["text"] for part in parts) == whole["text"]
    scores = whole["logprobs"]
    said = {name: [each for part in parts for each in part["logprobs"][name]] for name in scores}
    for name in ("tokens", "text_offset"):
        assert said[name] == scores[name]
    assert said["token_logprobs"] == pytest.approx(scores["token_logprobs"], abs=0.1)
    assert said["top_logprobs"][0] is scores["top_logprobs"][0] is None
    for each in (said, scores):  # the likeliest token, and the token itself
        pairs = [*zip(each["tokens"], each["top_logprobs"], strict=True)][1:]
        assert all(token in top and len(top) <= 2 for token, top in pairs)
        assert any(len(top) == 2 for _, top in pairs), (
            "the prompt's tokens are not always the likeliest"
        )
    assert whole["logprobs"]["token_logprobs"][0] is None
    offsets = zip(whole["logprobs"]["text_offset"], whole["logprobs"]["tokens"], strict=True)
    assert all(whole["text"].startswith(token, at) for at, token in offsets)


@pytest.mark.parametrize("skip", [True, False])
def test_an_answer_keeps_the_space_that_a_decoder_drops_at_the_beginning_of_a_text(
    served, tmp_path, monkeypatch, skip
):
    """SentencePiece's decoder does so (Llama 2, Mistral, Phi-3)."""
    url, front = f"{served[0]}/v1/completions", served[1]
    asked = {"prompt": "The json", "max_tokens": 6, "temperature": 0, "logprobs": 1, "echo": True}
    asked |= {"structured_outputs": {"choice": [" module"]}, "skip_special_tokens": skip}
    usual = httpx2.post(url, json=asked).json()["choices"][0]
    assert usual["text"] == "The json module"
    folder = copytree(EMBEDDED, tmp_path / "drops", ignore=ignore_patterns("*.safetensors"))
    made = json.loads((folder / "tokenizer.json").read_text())
    drop = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    made["decoder"] = {"type": "Sequence", "decoders": [made["decoder"], drop]}
    (folder / "tokenizer.json").write_text(json.dumps(made))
    words = AsyncTokenizer(Tokenizer(folder, 4_096), folder)
    assert words.inner.decode(words.inner.encode(" module")) == "module"
    monkeypatch.setattr(front.model, "_tokenizer", words)
    said = httpx2.post(url, json=asked).json()["choices"][0]
    words.close()
    assert said["text"] == usual["text"]
    assert said["logprobs"]["tokens"] == usual["logprobs"]["tokens"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("skip", [True, False])
def test_offsets_do_not_count_special_tokens_that_the_text_leaves_out(served, skip, stream):
    url, asked = f"{served[0]}/v1/completions", {"prompt": [1, 300, 1, 301], "max_tokens": 2}
    asked |= {"echo": True, "logprobs": 0, "skip_special_tokens": skip, "stream": stream, "seed": 1}
    said = httpx2.post(url, json=asked).text
    lines = [line[6:] for line in said.splitlines() if line.startswith("data: {")] or [said]
    parts = [json.loads(line)["choices"][0] for line in lines]
    text = "".join(part["text"] for part in parts)
    tokens, offsets = (
        [each for part in parts for each in part["logprobs"][name]]
        for name in ("tokens", "text_offset")
    )
    assert tokens[0] == tokens[2] == "<|bos|>" and len(tokens) == 6
    assert text.startswith("<|bos|>") != skip
    shown = [pair for pair in zip(tokens, offsets, strict=True) if not skip or "|" not in pair[0]]
    assert all(text.startswith(token, at) for token, at in shown)
    assert offsets[2] + (0 if skip else 7) == offsets[3]


def test_a_prompt_can_be_scored_without_an_answer(served, offline):
    asked = {"prompt": "The json module", "max_tokens": 0, "echo": True, "logprobs": 0}
    said = httpx2.post(f"{served[0]}/v1/completions", json=asked).json()["choices"][0]
    assert (said["text"], said["finish_reason"]) == ("The json module", "length")
    alone = offline.generate("The json module", Options(max_tokens=0, prompt_logprobs=0))[0]
    assert said["logprobs"]["token_logprobs"][1:] == pytest.approx(
        [each.sampled for each in alone.prompt_logprobs], abs=1e-4
    )


def test_structured_outputs_obey_their_constraint_and_a_bad_regex_is_refused(client):
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "size": {"enum": [1, 2]}},
        "required": ["ok", "size"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for seed in range(4):
        said = client.chat.completions.create(
            model="headway-tiny", messages=ASK, max_tokens=200, seed=seed, response_format=shape
        )
        found = json.loads(said.choices[0].message.content)
        assert said.choices[0].finish_reason == "stop"
        assert set(found) == {"ok", "size"} and found["size"] in (1, 2)
    said = client.completions.create(
        model="headway-tiny", prompt="x", extra_body={"structured_outputs": {"choice": ["a", "b"]}}
    )
    assert said.choices[0].text in ("a", "b")
    with pytest.raises(openai.BadRequestError, match="cannot be compiled"):
        client.completions.create(
            model="headway-tiny", prompt="x", extra_body={"structured_outputs": {"regex": "["}}
        )


@pytest.mark.parametrize("schema", ['{"const": 1e999}', '{"enum": [-1e999]}'])
def test_a_schema_with_a_number_that_is_not_finite_is_refused(served, schema):
    forms = {
        "response_format": f'{{"type": "json_schema", "json_schema": {{"schema": {schema}}}}}',
        "structured_outputs": f'{{"json": {schema}}}',
    }
    for field, form in forms.items():
        body = f'{{"messages": [{{"role": "user", "content": "a"}}], "{field}": {form}}}'
        answer = httpx2.post(
            f"{served[0]}/v1/chat/completions",
            content=body,
            headers={"content-type": "application/json"},
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, field)
        assert error["code"] == "invalid_grammar" and "Out of range float" in error["message"]


def test_an_unknown_token_in_a_prompt_gets_400_that_names_the_prompt(served):
    answer = httpx2.post(f"{served[0]}/v1/completions", json={"prompt": [99_999]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        {"structured_outputs": {"choice": ["yes"]}, "min_tokens": 5},
        {"structured_outputs": {"regex": "a"}, "bad_words": ["a"]},
        {"structured_outputs": {"grammar": 'start: "xx" A\nA: /a/ & /b/'}},
    ],
)
def test_constraints_that_no_token_satisfies_are_an_invalid_request_error(served, said, stream):
    asked = {"prompt": "The json module", "max_tokens": 9, "temperature": 0, "stream": stream}
    answer = httpx2.post(f"{served[0]}/v1/completions", json=asked | said)
    if stream and answer.status_code == 200:  # its first tokens have been sent already
        *_, failure, done = [line for line in answer.text.split("\n\n") if line]
        assert done == "data: [DONE]"
        error = json.loads(failure[6:])["error"]
    else:
        assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")
        error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "unsatisfiable")


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"n": 2, "logprobs": True, "top_logprobs": 20, "seed": 1},
        {"stop": ["e"], "service_tier": "auto", "user": "u", "metadata": {"a": "b"}},
        {"response_format": {"type": "json_object"}},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_chats_satisfy_the_clients_strict_types(client, said, stream):
    """The client validates each field of an answer, and refuses what its types do not admit."""
    asked = {"model": "headway-tiny", "messages": ASK, "max_tokens": 12} | said
    if not stream:
        assert client.chat.completions.create(**asked).usage.total_tokens
        return
    options = {"include_usage": True}, {"continuous_usage_stats": True}
    for each in options:
        chunks = [*client.chat.completions.create(**asked, stream=True, stream_options=each)]
        assert chunks[-1].usage.total_tokens


@pytest.mark.parametrize(
    "said", [{}, {"n": 2, "logprobs": 5}, {"echo": True}, {"prompt": ["a", "b"]}, {"stop": "e"}]
)
def test_completions_satisfy_the_clients_strict_types(client, said):
    asked = {"model": "headway-tiny", "prompt": "The json", "max_tokens": 8} | said
    assert client.completions.create(**asked).usage.total_tokens


def test_unfinished_chunks_and_a_prompts_first_logprob_have_nulls(client):
    """A chunk before the end has no finish_reason, and a prompt's first token no log-probability.
    OpenAI sends these nulls too. The client's types allow neither, but any value that they do allow
    would be untrue."""
    asked = {"model": "headway-tiny", "prompt": "The json", "max_tokens": 2}
    asked |= {"echo": True, "logprobs": 1, "extra_body": {"ignore_eos": True}}
    with openai.OpenAI(base_url=client.base_url, api_key="none") as lenient:
        scores = lenient.completions.create(**asked).choices[0].logprobs
        assert scores.token_logprobs[0] is scores.top_logprobs[0] is None
        assert all(each < 0 for each in scores.token_logprobs[1:])
        *chunks, last = lenient.completions.create(**asked, stream=True)
        assert {each.choices[0].finish_reason for each in chunks} == {None}
        assert last.choices[0].finish_reason == "length"


def test_endpoints_that_are_not_offered_raise_the_clients_not_found_error(client):
    for ask in (
        lambda: client.responses.create(model="headway-tiny", input="x"),
        lambda: client.moderations.create(input="x"),
    ):
        with pytest.raises(openai.NotFoundError, match="there is no POST /v1/") as caught:
            ask()
        assert (caught.value.code, caught.value.type) == ("unknown_url", "not_found_error")


def test_files_and_batches_without_a_store_name_the_setting_that_they_need(client):
    for ask in (client.files.list, client.batches.list):
        with pytest.raises(openai.NotFoundError, match=r"configuration must have jobs\.store"):
            ask()


def test_special_tokens_are_skipped_or_shown_as_asked(client):
    asked = {"model": "headway-tiny", "prompt": "x", "max_tokens": 1, "temperature": 0}
    asked |= {"logit_bias": {"2": 100}}
    hidden = client.completions.create(**asked, extra_body={"ignore_eos": True})
    assert (hidden.choices[0].text, hidden.usage.completion_tokens) == ("", 1)
    shown = client.completions.create(
        **asked, extra_body={"ignore_eos": True, "skip_special_tokens": False}
    )
    assert shown.choices[0].text == "<|end|>"


@pytest.mark.parametrize(
    "said, error, code",
    [
        ({"model": "other"}, openai.NotFoundError, "model_not_found"),
        ({"max_tokens": 5_000}, openai.BadRequestError, "context_length_exceeded"),
        ({"extra_body": {"temprature": 1}}, openai.BadRequestError, "unknown_parameter"),
        ({"service_tier": "flex"}, openai.BadRequestError, "no_such_lane"),
    ],
)
def test_errors_are_the_clients_own_exceptions(client, said, error, code):
    asked = {"model": "headway-tiny", "messages": ASK} | said
    with pytest.raises(error) as caught:
        client.chat.completions.create(**asked)
    assert caught.value.code == code and caught.value.request_id


def test_the_clients_own_retries_end_in_an_answer():
    """The lane has one waiting place. A client that finds it taken retries when it was told to."""
    config = ServerConfig(lanes={"standard": {"max_waiting": 1}}, engine={"slots": 1})
    statuses, said = [], []
    http = openai.DefaultHttpxClient(
        event_hooks={"response": [lambda response: statuses.append(response.status_code)]}
    )
    with (
        serving(config, embedded) as (url, _),
        openai.OpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            _strict_response_validation=True,
            max_retries=9,
            http_client=http,
        ) as made,
    ):
        asked = {"model": "headway-tiny", "prompt": "x", "max_tokens": 150, "temperature": 0}
        asked |= {"extra_body": {"ignore_eos": True}}
        threads = [
            threading.Thread(target=lambda: said.append(made.completions.create(**asked)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(said) == 4 and set(statuses) == {200, 429}
