"""OpenAI's JSON in and out, without a server."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.batch import Logprob
from headway.core.grammar import Grammar
from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.server.config.sections.limits import LimitSettings
from headway.server.config.tenant import Tenant
from headway.server.intake.model_and_lane import lane_of, model_of
from headway.server.protocol import reading
from headway.server.protocol.chunks import Chunks, failed
from headway.server.protocol.deadlines import deadlines_of
from headway.server.protocol.expected import expected_tokens
from headway.server.protocol.fields import ChatBody, CompletionBody
from headway.server.protocol.logprobs import Scores, chat_logprobs, text_logprobs
from headway.server.protocol.problem import Problem
from headway.server.protocol.reading import read
from headway.server.protocol.request import chat_request, completion_request
from headway.server.protocol.retry_after import jittered
from headway.server.protocol.vectors.fields import EmbeddingBody, RerankBody

BOUNDS = LimitSettings()
SECOND = 1_000_000_000


def chat(**said):
    body = {"messages": [{"role": "user", "content": "hello"}]} | said
    return chat_request(read(ChatBody, json.dumps(body).encode()), BOUNDS)


def completion(**said):
    body = {"prompt": "hello"} | said
    return completion_request(read(CompletionBody, json.dumps(body).encode()), BOUNDS)


def rerank(**said):
    return read(RerankBody, json.dumps({"query": "hello"} | said).encode())


@pytest.mark.parametrize(
    "said, param",
    [
        ({f"k{i}": 1 for i in range(1_100)}, ""),
        ({"logit_bias": {str(i): "" for i in range(1_100)}}, "logit_bias"),
        ({"metadata": {str(i): 1 for i in range(1_100)}}, "metadata"),
        ({"response_format": {"json_schema": {str(i): 1 for i in range(1_100)}}},
         "response_format.json_schema"),
        ({"messages": [{f"k{i}": 1 for i in range(1_100)}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": [dict.fromkeys(map(str, range(1_100)))]}]},
         "messages.0.content.0"),
    ],
)  # fmt: skip
def test_objects_have_a_bounded_number_of_entries(said, param):
    """Otherwise each wrong entry would become an error of its own, made on the event loop."""
    words, field = refused(chat, **said)
    assert field == param and "more than 1024 entries" in words


def test_a_long_list_or_name_gives_one_short_error(monkeypatch):
    counts, told = [], reading._validation_problem
    monkeypatch.setattr(
        reading, "_validation_problem", lambda *about: counts.append(len(about[2])) or told(*about)
    )
    _, field = refused(chat, structured_outputs={"choice": [1] * 30_000})
    assert field == "structured_outputs.choice.0" and counts == [1]
    large = dict.fromkeys(map(str, range(1_100)))
    for wrong, times in ((1, 30_000), ({}, 30_000), (large, 300)):  # each is tried in two forms
        _, field = refused(rerank, documents=["a", *[wrong] * times])
        assert field.startswith("documents.1") and counts.pop() == 2
    words, field = refused(chat, **{"k" * 100_000: 1})
    assert len(words) < 300 and len(field) <= 100


def refused(ask, **said):
    with pytest.raises(Problem) as caught:
        ask(**said)
    assert caught.value.status == 400
    return str(caught.value), caught.value.param


EVERYTHING = {
    "max_tokens": 7,
    "min_tokens": 2,
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.9,
    "min_p": 0.1,
    "seed": 4,
    "stop": ["a", "b"],
    "stop_token_ids": [9],
    "ignore_eos": True,
    "repetition_penalty": 1.1,
    "presence_penalty": 1,
    "frequency_penalty": -1.5,
    "logit_bias": {"5": -100},
    "bad_words": ["bad"],
    "n": 2,
    "truncate_prompt_tokens": 8,
}


@pytest.mark.parametrize("ask", [chat, completion])
def test_every_accepted_field_reaches_the_options(ask):
    options = ask(**EVERYTHING).options
    other = {
        "stop": ("a", "b"),
        "stop_tokens": frozenset({9}),
        "logit_bias": {5: -100},
        "bad_words": ("bad",),
        "truncate": 8,
    }
    for name, value in ({**EVERYTHING, **other}).items():
        if name not in ("stop_token_ids", "truncate_prompt_tokens"):
            assert getattr(options, name) == value, name


def test_the_defaults_are_openais():
    said, text = chat(), completion()
    assert said.options.temperature == text.options.temperature == 1.0
    assert (said.options.max_tokens, text.options.max_tokens) == (None, 16)
    assert (said.stream, said.usage, said.skip_special, said.options.n) == (False, False, True, 1)
    assert chat(top_k=-1).options.top_k == 0
    assert chat(stream_options=None, n=None, stop=None, logprobs=None) == said
    assert chat(skip_special_tokens=False).skip_special is False


def test_max_completion_tokens_takes_precedence_over_max_tokens():
    assert chat(max_completion_tokens=3, max_tokens=5).options.max_tokens == 3


def test_logprobs_are_read_in_the_forms_of_chat_and_of_completions():
    assert chat(logprobs=True).options.logprobs == 0
    assert chat(logprobs=True, top_logprobs=4).options.logprobs == 4
    assert chat(logprobs=False).options.logprobs == -1
    assert completion(logprobs=0).options.logprobs == 0
    scored = completion(logprobs=2, echo=True, max_tokens=0).options
    assert (scored.prompt_logprobs, scored.max_tokens, scored.echo) == (2, 0, True)
    assert completion(logprobs=2).options.prompt_logprobs == -1
    assert refused(chat, top_logprobs=3)[1] == "top_logprobs"


def test_prompts_are_read_in_all_four_forms():
    assert completion(prompt="a").prompts == ("a",)
    assert completion(prompt=["a", "b"]).prompts == ("a", "b")
    assert completion(prompt=[1, 2]).prompts == ((1, 2),)
    assert completion(prompt=[[1], [2, 3]]).prompts == ((1,), (2, 3))


def test_content_parts_become_one_text_and_developer_becomes_system():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    said = chat(messages=[{"role": "developer", "content": parts}])
    assert said.prompts == (({"role": "system", "content": "ab"},),)
    again = {"role": "assistant", "content": "x", "refusal": None, "tool_calls": None, "name": "y"}
    assert chat(messages=[again]).prompts == (({"role": "assistant", "content": "x"},),)


def test_fields_without_meaning_here_are_accepted_and_ignored():
    said = {"prompt_cache_key": "k", "prompt_cache_retention": "24h", "metadata": None}
    said |= {"user": "u", "safety_identifier": "s", "verbosity": "medium", "store": False}
    assert chat(**said, reasoning_effort="none") == chat()
    off = {"stream": True, "stream_options": {"include_obfuscation": False}}
    assert chat(**off) == chat(stream=True)


@pytest.mark.parametrize(
    "said, path",
    [
        ({"role": "tool", "content": "x", "tool_call_id": "1"}, "role"),
        ({"role": "function", "content": "x", "name": "f"}, "role"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, "tool_calls"),
        ({"role": "assistant", "content": "x", "function_call": {"name": "f"}}, "function_call"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "content.0.type"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "content.0.type"),
    ],
)
def test_unsupported_parts_of_messages_are_refused_by_name(said, path):
    message, param = refused(chat, messages=[{"role": "user", "content": "x"}, said])
    assert param == f"messages.1.{path}" and "not supported" in message


@pytest.mark.parametrize("field", ["moderation", "prompt_cache_options", "prediction", "tools"])
def test_unsupported_fields_are_refused_by_name(field):
    message, param = refused(chat, **{field: {"mode": "x"}})
    assert param == field and message.startswith(f"'{field}': ")


@pytest.mark.parametrize(
    "ask, said, param, part",
    [
        (completion, {"temprature": 1}, "temprature", "did you mean 'temperature'?"),
        (completion, {"temperature": "1"}, "temperature", "valid number"),
        (completion, {"temperature": -1}, "temperature", "greater than or equal to 0"),
        (completion, {"temperature": 1e308}, "temperature", "less than or equal to"),
        (completion, {"repetition_penalty": 1e308}, "repetition_penalty", "less than or equal to"),
        (completion, {"repetition_penalty": 0}, "repetition_penalty", "greater than 0"),
        (completion, {"n": True}, "n", "valid integer"),
        (completion, {"n": 17}, "n", "17, where 16 is the most"),
        (completion, {"n": 0}, "n", "greater than or equal to 1"),
        (completion, {"stop": [""]}, "stop", "empty"),
        (completion, {"stop": 3}, "stop", "valid string or Input should be a valid list"),
        (completion, {"stop": ["x"] * 17}, "stop", "the most"),
        (completion, {"stop": ["x", "y" * 1_025]}, "stop", "1025 characters, where 1024 are"),
        (completion, {"bad_words": ["y" * 1_025]}, "bad_words", "1025 characters, where 1024 are"),
        (completion, {"prompt": []}, "prompt", "empty"),
        (completion, {"prompt": ["a", 1]}, "prompt.1", "valid string"),
        (completion, {"prompt": ["a"] * 129}, "prompt", "128"),
        (completion, {"prompt": None}, "prompt", "valid string"),
        (completion, {"logit_bias": {"x": 1}}, "logit_bias", "'x' is not a token id"),
        (completion, {"logit_bias": {"5": 1, "05": 2}}, "logit_bias", "'05' is not a token id"),
        (completion, {"logit_bias": {"1": 101}}, "logit_bias.1", "less than or equal to 100"),
        (completion, {"suffix": "x"}, "suffix", "not supported"),
        (completion, {"best_of": 2}, "best_of", "not supported"),
        (completion, {"best_of": True}, "best_of", "not supported"),
        (completion, {"store": 0}, "store", "nothing is stored"),
        (completion, {"stream_options": {"include_usage": True}}, "stream_options", "'stream'"),
        (completion, {"seed": -1}, "seed", "greater than or equal to 0"),
        (completion, {"min_tokens": 17}, "min_tokens", "17"),
        (chat, {"tools": [{}]}, "tools", "tool calling is not supported"),
        (chat, {"messages": []}, "messages", "at least 1"),
        (chat, {"messages": [{"role": "user", "content": ""}] * 2_049}, "messages", "2049"),
        (chat, {"messages": [{"role": "user"}]}, "messages.0.content", "missing"),
        (chat, {"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role", "'user'"),
        (
            chat,
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages.0.content.0.type",
            "'text'",
        ),
        (
            chat,
            {"stream": True, "stream_options": {"include_usge": True}},
            "stream_options.include_usge",
            "did you mean 'include_usage'?",
        ),
        (chat, {"response_format": {"type": "json_schema"}}, "response_format.json_schema", ""),
        *[
            (
                chat,
                {"response_format": {"type": kind, "json_schema": {"schema": {}}}},
                "response_format.json_schema",
                f"is not obeyed with 'type': '{kind}'",
            )
            for kind in ("text", "json_object")
        ],
        (
            chat,
            {"structured_outputs": {"regex": "a", "choice": ["b"]}},
            "structured_outputs",
            "one",
        ),
        (chat, {"structured_outputs": {"regex": "a" * 70_000}}, "structured_outputs", "70000"),
        (
            chat,
            {"response_format": {"type": "json_object"}, "ignore_eos": True},
            "ignore_eos",
            "grammar",
        ),
    ],
)
def test_a_wrong_field_is_refused_by_name(ask, said, param, part):
    message, named = refused(ask, **said)
    assert named == param
    assert part in message and "\n" not in message


def test_values_that_change_nothing_are_accepted():
    said = {"tools": [], "tool_choice": "none", "best_of": None, "store": False, "audio": None}
    assert chat(**said, user="u", metadata={}) == chat()


def test_fields_of_generation_are_unknown_to_embeddings():
    for name in ("tools", "suffix"):
        with pytest.raises(Problem, match="is not a known field") as caught:
            read(EmbeddingBody, b'{"input": "a", "%s": null}' % name.encode())
        assert (caught.value.param, caught.value.code) == (name, "unknown_parameter")


def test_metadata_is_kept_for_the_rules_of_routes():
    assert chat(metadata={"a": "b"}).metadata == {"a": "b"} and not chat().metadata


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"prompt": "\xff"}', b'{"temperature": NaN}', b"[" * 9_999]
)
def test_a_body_that_is_no_json_object_is_refused(raw):
    with pytest.raises(Problem) as caught:
        read(CompletionBody, raw)
    assert caught.value.status == 400


@pytest.mark.parametrize("field", ["temperature", "top_p", "repetition_penalty"])
def test_a_number_too_large_for_a_float_is_refused_with_its_field(field):
    with pytest.raises(Problem, match="finite number") as caught:
        read(CompletionBody, b'{"prompt": "a", "%s": 1e999}' % field.encode())
    assert caught.value.param == field


FIELDS = sorted(ChatBody.model_fields.keys() | CompletionBody.model_fields.keys())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9)
)


@given(
    st.dictionaries(
        st.sampled_from(FIELDS) | st.text(max_size=9),
        st.recursive(LEAVES, st.lists, max_leaves=4),
        max_size=4,
    )
)
def test_any_json_object_gives_a_request_or_a_problem(body):
    for model, asked in ((ChatBody, chat_request), (CompletionBody, completion_request)):
        try:
            asked(read(model, json.dumps(body).encode()), BOUNDS)
        except Problem as problem:
            assert problem.status == 400 and problem.body["error"]["message"]


@pytest.mark.parametrize(
    "said, grammar",
    [
        ({"response_format": {"type": "text"}}, Grammar()),
        ({"response_format": {"type": "json_object"}}, Grammar("json_object")),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"b": 1, "a": "ü"}, "strict": True},
                }
            },
            Grammar("json_schema", '{"b":1,"a":"ü"}'),
        ),
        ({"structured_outputs": {"regex": "a+"}}, Grammar("regex", "a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Grammar("choice", '["a","b"]')),
        ({"structured_outputs": {"grammar": "start: /a/"}}, Grammar("lark", "start: /a/")),
        ({"structured_outputs": {"json": {"a": 1}}}, Grammar("json_schema", '{"a":1}')),
        ({"structured_outputs": {"json": '{"a": 1}'}}, Grammar("json_schema", '{"a": 1}')),
        ({"structured_outputs": {"json_object": True}}, Grammar("json_object")),
    ],
)
def test_response_formats_become_grammars(said, grammar):
    assert chat(**said).options.grammar == completion(**said).options.grammar == grammar


def test_a_model_may_be_named_with_a_lane():
    names, lanes = ("tiny", "also"), ("voice", "offline")
    assert model_of("", names, lanes) == ("tiny", "")
    assert model_of("also", names, lanes) == ("also", "")
    assert model_of("tiny@voice", names, lanes) == ("tiny", "voice")
    for unknown in ("other", "tiny@nowhere", "other@voice", "@voice", "tiny@"):
        with pytest.raises(Problem) as caught:
            model_of(unknown, names, lanes)
        assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    with pytest.raises(Problem, match=r"'tiny' has no lane 'nowhere'; there are "):
        model_of("tiny@nowhere", names, lanes)


def test_a_lane_is_taken_from_the_header_then_the_tier_then_the_model_then_the_key():
    lanes = ("a", "b", "c", "d", "e")
    tenant = Tenant("t", "k", frozenset("abcd"), "d", "")
    assert lane_of("a", "b", "c", tenant, lanes) == "a"
    assert lane_of("", "b", "c", tenant, lanes) == "b"
    assert lane_of("", "auto", "c", tenant, lanes) == "c"
    assert lane_of("", "default", "", tenant, lanes) == "d"
    for status, asked in ((400, ("x", "", "")), (403, ("e", "", "")), (400, ("", "flex", ""))):
        with pytest.raises(Problem) as caught:
            lane_of(*asked, tenant, lanes)
        assert caught.value.status == status


def test_headers_tighten_limits_and_never_loosen_them():
    lane = Budget(ttft=SECOND, tpot=SECOND, queue=2 * SECOND)
    held = deadlines_of(lane, {}, 5)
    assert (held.budget, held.start_by, held.end_by) == (lane, 5 + 2 * SECOND, NEVER)
    tight = {"x-slo-ttft-ms": "100", "x-slo-tpot-ms": "0.5", "x-headway-timeout-ms": "3000"}
    held = deadlines_of(lane, tight, 5)
    assert held.budget == Budget(SECOND // 10, 500_000, 3 * SECOND, SECOND // 10)
    assert (held.start_by, held.end_by) == (5 + SECOND // 10, 5 + 3 * SECOND)
    loose = {"x-slo-ttft-ms": "9000", "x-slo-tpot-ms": "9000"}
    assert deadlines_of(lane, loose, 5) == deadlines_of(lane, {}, 5)
    due = deadlines_of(lane, {"x-headway-due-ms": "2000"}, 5)
    assert due == replace(deadlines_of(lane, {}, 5), due=5 + 2 * SECOND), "nothing else changes"


def test_deadlines_say_which_of_them_are_the_clients_own():
    lane = Budget(e2e=4 * SECOND, queue=2 * SECOND)
    for ttft, timeout, own in (
        ("9000", "9000", (False, False)),
        ("2000", "4000", (False, False)),
        ("1000", "9000", (True, False)),
        ("9000", "3000", (False, True)),  # the lane's queue limit comes first
        ("9000", "1000", (True, True)),
    ):
        headers = {"x-slo-ttft-ms": ttft, "x-headway-timeout-ms": timeout}
        assert deadlines_of(lane, headers, 5).own == own


def test_a_limit_in_a_header_must_be_a_positive_number_of_milliseconds():
    lane = Budget()
    for wrong in ("0", "-1", "soon", "nan", "inf", "1_000", ""):
        with pytest.raises(Problem, match="x-slo-ttft-ms"):
            deadlines_of(lane, {"x-slo-ttft-ms": wrong}, 5)


def test_the_expected_tokens_are_a_whole_number_above_zero():
    assert expected_tokens({}) == 0
    assert expected_tokens({"x-headway-expected-tokens": "250"}) == 250
    assert expected_tokens({"x-headway-expected-tokens": "1000000000"}) == 10**9
    for wrong in ("0", "-1", "2.5", "many", "", " 7", "1_0", "\u0663", "1000000001", "9" * 5_000):
        with pytest.raises(Problem, match="x-headway-expected-tokens must be a whole") as caught:
            expected_tokens({"x-headway-expected-tokens": wrong})
        assert (caught.value.status, caught.value.param) == (400, "x-headway-expected-tokens")
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


@given(st.floats(min_value=-1e9, max_value=1e12))
def test_retry_after_is_no_longer_than_clients_will_wait(seconds):
    assert 1 <= jittered(seconds) <= 120


def test_a_problem_has_openais_error_body():
    problem = Problem(429, "full", "lane", "lane_full", retry=2.25)
    error = {"message": "full", "type": "rate_limit_error", "param": "lane", "code": "lane_full"}
    assert problem.body == {"error": error}
    assert problem.headers == {"retry-after": "3", "retry-after-ms": "2250"}
    assert Problem(408, "late", final=True).headers == {"x-should-retry": "false"}
    assert failed(Problem(500, "x")).startswith(b'data: {"error":{"message":"x"')


def data(line):
    assert line.startswith(b"data: ") and line.endswith(b"\n\n") and line.count(b"\n") == 2
    return json.loads(line[6:])


@given(st.text(), st.booleans())
def test_each_chunk_is_json_on_one_line(text, usage):
    chunks = Chunks(True, "id", 7, "m", usage)
    said = data(chunks.text(1, text))
    head = {"id": "id", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    choice = {"index": 1, "delta": {"content": text}, "logprobs": None, "finish_reason": None}
    assert said == head | {"choices": [choice]} | ({"usage": None} if usage else {})
    assert data(Chunks(False, "id", 7, "m", usage).text(0, text))["choices"][0]["text"] == text


def test_a_stream_begins_with_a_role_and_ends_with_a_finish_reason_and_the_usage():
    chunks = Chunks(True, "id", 7, "m", True)
    first = data(chunks.role(2))["choices"][0]
    assert (first["index"], first["delta"]) == (2, {"role": "assistant", "content": ""})
    last = data(chunks.text(2, "", "stop"))["choices"][0]
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")
    used = data(chunks.usage({"total_tokens": 3}, {"queue_time_ms": 1.0}))
    assert (used["choices"], used["usage"]) == ([], {"total_tokens": 3})
    assert data(chunks.text(0, "x", usage={"total_tokens": 1}))["usage"] == {"total_tokens": 1}


SPELLED = {1: "He", 2: "llo", 3: "\ufffd", 4: "He"}


def test_logprobs_of_a_completion_are_parallel_lists_with_text_offsets():
    scores = [Logprob(-1.5, ((2, -0.5), (4, -1.5), (1, -2.0)))]
    said = text_logprobs(Scores([1, 2], scores, SPELLED.__getitem__), 3)
    assert said == {
        "tokens": ["He", "llo"],
        "token_logprobs": [None, -1.5],
        "top_logprobs": [None, {"llo": -0.5, "He": -1.5}],
        "text_offset": [3, 5],
    }


def test_top_logprobs_of_a_completion_include_the_token_itself():
    """A token has up to logprobs + 1 of them; with logprobs 0, only itself."""
    scores = [Logprob(-1.5), Logprob(-3.0, ((2, -0.5), (1, -0.75))), Logprob(-float("inf"))]
    said = text_logprobs(Scores([1, 3, 2], scores, SPELLED.__getitem__), 0)
    rivals = {"llo": -0.5, "He": -0.75, "\ufffd": -3.0}
    assert said["top_logprobs"] == [{"He": -1.5}, rivals, {"llo": -9999.0}]
    assert [*said["top_logprobs"][1]] == [*rivals], "in this order"


def test_logprobs_of_a_chat_are_entries_with_bytes_and_top_logprobs():
    said = chat_logprobs(Scores([3], [Logprob(-float("inf"), ((1, -0.5),))], SPELLED.__getitem__))
    top = {"token": "He", "logprob": -0.5, "bytes": [72, 101]}
    entry = {"token": "\ufffd", "logprob": -9999.0, "bytes": None, "top_logprobs": [top]}
    assert said == {"content": [entry], "refusal": None}
